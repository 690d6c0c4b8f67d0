package gateway

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestMadeUpDevices: more made-up devices than the kernel's neighbour table may learn, 1024 on a machine that nobody
// has set up, keep the portal from nobody. Another program leases addresses, so that each becomes a client with its
// first packet. Long: the steps of one run, each of which needs the state that the one before left.
func TestMadeUpDevices(t *testing.T) {
	const many, loads = 1100, 15
	network(t)
	dir, err := os.MkdirTemp("/run", "") // in memory, because each claim is written to the disk
	must(t, err)
	d := start(t, dir)
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	sh(t, `ip addr flush dev lan0; ip addr add 10.1.0.1/16 dev lan0
ip -n client addr add 10.1.0.9/16 dev c0; ip -n client route add default via 10.1.0.1
ip link add evil0 arp off type veth peer name evil1 netns hub; ip link set evil0 up
ip netns exec hub sh -ec '`+netnstest.Hub+`plug evil1'; `+netnstest.Up+`up evil0`)
	t.Cleanup(func() { sh(t, "ip link del evil0") })
	evil := invented(t, "evil0", many)
	for _, kind := range []string{"ebpf", "nfqueue"} {
		cfg := *d.cfg
		cfg.LAN.Address, cfg.DHCP.Mode, cfg.Datapath.Kind = netip.MustParsePrefix("10.1.0.1/16"), config.External, kind
		d := serve(t, &cfg)
		tries := 0
		netnstest.Await(t, "made-up devices as clients", func() error {
			if tries++; tries%20 == 1 { // while the gateway is at work, more only keep it from that
				evil()
			}
			if n := len(d.sessions(t)); n < many {
				return fmt.Errorf("%d of %d", n, many)
			}
			return nil
		})
		page := func() error {
			evil() // entries that have just been used are not forgotten
			if code, _ := try(
				"ip -n client neigh flush dev c0; " + curl + "-o /dev/null -w '%{http_code}' http://192.0.2.2/"); code != "302" {
				return fmt.Errorf("%s: %q, want the portal's 302", kind, code)
			}
			return nil
		}
		netnstest.Await(t, "the portal of a client that comes last", page)
		for range loads {
			if err := page(); err != nil {
				t.Error(err)
			}
		}
		if learned := strings.Count(sh(t, "ip neigh show dev lan0 | grep -v PERMANENT || :"), "\n"); learned > 0 {
			t.Errorf("%s: the kernel has learned %d neighbours of the LAN", kind, learned)
		}
		must(t, d.stop())
		must(t, Detach(d.cfg, false))
		if left := sh(t, "ip neigh show dev lan0 nud permanent"); left != "" {
			t.Errorf("%s: detach leaves neighbours:\n%.500s", kind, left)
		}
	}
}

// invented returns a function that sends ARP requests of many devices for the gateway's address, and their answers to
// what the gateway asks them.
func invented(t *testing.T, link string, many int) func() {
	t.Helper()
	dev, err := net.InterfaceByName(link)
	must(t, err)
	conn, err := packet.Listen(dev, packet.Raw, unix.ETH_P_ARP, nil)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	everybody := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	return func() {
		for n := range many {
			b := append([]byte(everybody), 2, 9, 0, 0, byte(n>>8), byte(n), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
			b = append(b, b[6:12]...)
			b = binary.BigEndian.AppendUint32(b, 10<<24|1<<16|uint32(1000+n))
			b = append(b, 0, 0, 0, 0, 0, 0, 10, 1, 0, 1)
			b = append(b, make([]byte, 18)...)
			for _, operation := range []byte{1, 2} {
				b[21] = operation
				if _, err := conn.WriteTo(b, &packet.Addr{HardwareAddr: everybody}); err != nil {
					return // the link's queue is full
				}
			}
		}
	}
}

// TestNeighbourEntriesRemoved: the clients' neighbour entries end with a change to a data path that needs none,
// and with detach, also where the programs that used them are gone already.
func TestNeighbourEntriesRemoved(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	must(t, d.stop())
	entries := func() string { return sh(t, "ip neigh show dev lan0 proto 103") }
	if entries() == "" {
		t.Fatal("a client has no entry")
	}
	// without any address the kernel would remove them
	sh(t, `rm -r /sys/fs/bpf/test; ip addr add 10.99.0.1/24 dev lan0; ip addr del 10.1.0.1/24 dev lan0`)
	tun := startOn(t, dir, `kind = "tun"`)
	if left := entries(); left != "" {
		t.Errorf("with tun there are\n%s", left)
	}
	must(t, tun.stop())
	sh(t, `ip addr del 10.1.0.1/24 dev tun0; ip addr add 10.1.0.1/24 dev lan0`)
	d = start(t, dir)
	if entries() == "" {
		t.Fatal("a client has no entry again")
	}
	must(t, d.stop())
	sh(t, `rm -r /sys/fs/bpf/test`)
	must(t, Detach(tun.cfg, false))
	if left := entries(); left != "" {
		t.Errorf("detach leaves\n%s", left)
	}
}
