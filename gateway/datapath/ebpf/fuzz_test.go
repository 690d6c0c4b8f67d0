// Fuzz tests of the programs with any frame, and of the decoders of their records. newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go). index is the number of an
// interface.

package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// FuzzRecords: no record in the programs' rings crashes its decoder.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00abc"))
	f.Add([]byte{10, 1, 0, 10, 2, 0, 0, 0, 0, 10, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if frame, err := requested(b); err == nil && !bytes.HasPrefix(b[4:], frame) {
			t.Errorf("%x of %x", frame, b)
		}
		if addr, mac, ok := newcomer(b); ok && (!addr.Is4() || !bytes.Equal(b[4:10], mac[:])) {
			t.Errorf("%s %x of %x", addr, mac, b)
		}
	})
}

// FuzzPrograms gives the programs any frame from the LAN and from the WAN. Frames that are neither from nor for the
// admitted client are not redirected, and not left for the stack to forward. Long: it sets up both sides for all
// programs.
func FuzzPrograms(f *testing.F) {
	lan, wan := fmt.Sprintf("fl%d", os.Getpid()), fmt.Sprintf("fw%d", os.Getpid())
	out, err := try(netnstest.Up+
		`ip link add $lan address 02:00:00:00:01:01 type veth peer name p$lan; ip link add $wan address 02:00:00:00:01:02 type veth peer name p$wan
ip addr add 10.1.0.1/24 dev $lan; ip addr add 192.0.2.1/24 dev $wan; for l in $lan p$lan $wan p$wan; do ip link set $l up; done; up $lan $wan
ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan`, "lan="+lan, "wan="+wan)
	if err != nil {
		f.Fatalf("%v\n%s", err, out)
	}
	f.Cleanup(func() { try("ip link del $lan; ip link del $wan", "lan="+lan, "wan="+wan) })
	cfg := Config{Networks: networksOf(lan), WAN: wan, PortalPorts: []uint16{8080}, PinDir: "/sys/fs/bpf/" + lan,
		Forward: ForwardRedirect, DHCP: true}
	d, err := Open(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close(); detach(cfg) })
	for _, c := range []datapath.Client{{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true},
		{Addrs: []netip.Addr{bob}, MAC: bobMAC}} {
		if err := d.Set(c); err != nil {
			f.Fatal(err)
		}
	}
	for _, b := range [][]byte{
		tcp(443), udp(443, from(bob, bobMAC)), tcp(80, from(bob, bobMAC)), datapathtest.SYN(443, from(bob, bobMAC)),
		udp(67, source(68), from(bob, bobMAC)), udp(443, from(alice, bobMAC)),
		udp(443, to(bob)), arpFrame(bob, bobMAC), datapathtest.IPv6(bobMAC), datapathtest.Tagged(udp(443), 0x8100, 0),
		udp(443, datapathtest.Options), udp(443, datapathtest.Fragment(0)), udp(40000, down), tcp(443, down),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 1514 {
			return
		}
		for name, p := range map[string]struct {
			index   uint32
			program *ebpf.Program
		}{"lan_in": {index(t, lan), d.objs.LanIn}, "wan_in": {index(t, wan), d.objs.WanIn}} {
			opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb{Ifindex: p.index}}
			verdict, err := p.program.Run(opts)
			if errors.Is(err, unix.EINVAL) {
				continue // the kernel runs programs only over frames with a whole header
			}
			must(t, err)
			if reason := leak(name, frame, verdict, opts.DataOut); reason != "" {
				t.Errorf("%s: verdict %d: %s: %x", name, verdict, reason, frame)
			}
		}
	})
}

// leak returns what is wrong with a verdict on a frame; empty: nothing.
func leak(program string, frame []byte, verdict uint32, out []byte) string {
	if verdict == shot {
		return ""
	}
	whose := func() bool { // untagged or with a priority, which is removed
		position := 12
		for len(frame) >= position+4 &&
			(frame[position] == 0x81 && frame[position+1] == 0 || frame[position] == 0x88 && frame[position+1] == 0xa8) {
			position += 4
		}
		ip := frame[min(len(frame), position+2):]
		switch {
		case len(ip) < 20:
			return false
		case program == "wan_in":
			return netip.AddrFrom4([4]byte(ip[16:20])) == alice
		}
		return netip.AddrFrom4([4]byte(ip[12:16])) == alice && bytes.Equal(frame[6:12], aliceMAC[:])
	}
	if verdict == redirect {
		refused := program == "lan_in" && len(out) > 6 && bytes.Equal(out[:6], frame[6:12])
		if !refused && !whose() {
			return "redirected, and not the admitted client's"
		}
		return ""
	}
	if program == "wan_in" || len(out) < 34 || binary.BigEndian.Uint16(out[12:]) != 0x0800 ||
		!bytes.Equal(out[:6], lanMAC[:]) || out[14] != 0x45 {
		return "" // lan_out judges, or the stack does not forward this
	}
	to := netip.AddrFrom4([4]byte(out[30:34]))
	if !whose() && to != gateway && to != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && !to.IsMulticast() &&
		to != routerWAN {
		return "left for the stack to forward to " + to.String()
	}
	return ""
}
