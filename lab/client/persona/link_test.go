package persona

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// network is a host with personas and a router with a real DHCP server.
type network struct {
	labtest.Pair
	link *Link
	dhcp *DHCP
	log  logtest.Log // of dnsmasq
}

// newNetwork joins personas, whose names for each other are labtest's client and
// server, to dnsmasq, which leases addresses from 10.77.1.1 on.
func newNetwork(t *testing.T, last string) *network {
	t.Helper()
	n := &network{Pair: labtest.NewPair(t)}
	cmd := exec.Command(
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping",
		"--interface=gwt1", "--except-interface=lo", "--leasefile-ro", "--user=root", "--dhcp-authoritative", "--log-dhcp",
		"--log-facility=-",
		"--pid-file=", "--dhcp-range=10.77.1.1,"+last+",255.255.0.0,10m")
	cmd.Stderr = &n.log
	n.Server.Do(func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	labtest.Await(t, "dnsmasq to start", func() bool { return n.log.Count("IP range") > 0 })
	var err error
	n.Client.Do(func() {
		if n.link, err = Open(Config{Interface: "gwt0", LAN: lan, Clients: 100}); err == nil {
			if n.dhcp, err = NewDHCP("gwt0"); err == nil {
				err = n.dhcp.Hold()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.dhcp.Unhold()
		n.Client.Do(func() {
			if err := errors.Join(n.link.Close(), n.link.Close()); err != nil {
				t.Errorf("closing, twice: %v", err)
			}
		})
	})
	return n
}

func clientMAC(i int) MAC { return MAC{2, 0x67, 0x77, 'a', byte(i >> 8), byte(i)} }

// join leases an address for client i and makes it the client's.
func (n *network) join(t *testing.T, i int) Lease {
	t.Helper()
	l, _, err := n.dhcp.Lease(t.Context(), clientMAC(i))
	if err != nil {
		t.Fatal(err)
	}
	n.Client.Do(func() {
		err = errors.Join(n.link.Put(l.Addr.Addr(), clientMAC(i)), n.link.SetRouter(l.Router))
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestManyClientsLeaseAtOnce(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	const clients = 100
	leases := make([]Lease, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { leases[i], _, errs[i] = n.dhcp.Lease(t.Context(), clientMAC(i)) })
	}
	wg.Wait()
	seen := map[netip.Addr]bool{}
	for i, l := range leases {
		if errs[i] != nil || seen[l.Addr.Addr()] || !lan.Contains(l.Addr.Addr()) || l.Addr.Bits() != 16 ||
			l.Router != labtest.ServerIP || l.Server != labtest.ServerIP {
			t.Errorf("client %d: %+v, %v", i, l, errs[i])
		}
		seen[l.Addr.Addr()] = true
	}
}

func TestLeaseIsRenewedAskedForAgainAndGivenBack(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	l := n.join(t, 1)
	renewed, tries, err := n.dhcp.Renew(t.Context(), clientMAC(1), l)
	if err != nil || renewed.Addr != l.Addr || tries.Count != 1 {
		t.Errorf("renewing %s gave %+v, %+v, %v", l.Addr, renewed, tries, err)
	}
	if n.log.Count("DHCPDISCOVER") != 1 {
		t.Error("a renewal looked for servers")
	}
	back, _, err := n.dhcp.Rejoin(t.Context(), clientMAC(1), l.Addr.Addr())
	if err != nil || back.Addr != l.Addr {
		t.Errorf("coming back to %s gave %+v, %v", l.Addr, back, err)
	}
	if _, _, err := n.dhcp.Rejoin(t.Context(), clientMAC(2), l.Addr.Addr()); !errors.Is(err, errRefused) {
		t.Errorf("asking for another's address: %v, want a refusal", err)
	}
	if err := n.dhcp.Release(clientMAC(1), l); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "dnsmasq to have the lease back",
		func() bool { return n.log.Count("DHCPRELEASE(gwt1) "+l.Addr.Addr().String()) == 1 })
}

func TestDeclinedAddressIsNotGivenAgain(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	l := n.join(t, 1)
	if err := n.dhcp.Decline(clientMAC(1), l); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "dnsmasq to hear of it", func() bool { return n.log.Count("DHCPDECLINE") == 1 })
	again, _, err := n.dhcp.Lease(t.Context(), clientMAC(1))
	if err != nil || again.Addr == l.Addr {
		t.Errorf("after declining %s it got %+v, %v", l.Addr, again, err)
	}
}

func TestSilenceEndsWithTheContext(t *testing.T) {
	n := newNetwork(t, "10.77.1.2")
	n.join(t, 1)
	n.join(t, 2) // no address is left
	gone := errors.New("patience is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		labtest.Await(t, "a third client's questions", func() bool { return n.log.Count("no address available") > 0 })
		cancel(gone)
	}()
	if l, _, err := n.dhcp.Lease(ctx, clientMAC(3)); !errors.Is(err, gone) {
		t.Errorf("without an address to be had: %+v, %v", l, err)
	}
}

// visit connects as an address and returns what the router saw.
func (n *network) visit(from netip.Addr, to netip.AddrPort, how ...func(fd int)) (string, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	d.ControlContext = func(_ context.Context, _, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			for _, h := range how {
				h(int(fd))
			}
		})
	}
	var conn net.Conn
	var err error
	n.Client.Do(func() { conn, err = d.Dial("tcp4", to.String()) })
	if err != nil {
		return "", err
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	return string(text), err
}

// setUserTimeout has a connection fail when its first SYN is not answered.
func setUserTimeout(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 500) }

func TestEachClientIsSeenUnderItsOwnAddresses(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	addr := labtest.Greet(t, n.Server)
	const clients = 20
	for i := range clients {
		l := n.join(t, i)
		if i == 0 { // the first also asks for the router, which so knows it unasked
			if _, err := n.visit(l.Addr.Addr(), addr); err != nil {
				t.Fatal(err)
			}
			n.Server.Run(t, "ip neigh flush dev gwt1")
		}
		saw, err := n.visit(l.Addr.Addr(), addr)
		if err != nil || saw != l.Addr.Addr().String() {
			t.Fatalf("client %d at %s was seen as %q, %v", i, l.Addr, saw, err)
		}
		if mac := n.neighbour(t, l.Addr.Addr()); mac != clientMAC(i).String() {
			t.Errorf("the router knows %s as %s, want %s", l.Addr, mac, clientMAC(i))
		}
		var c Counters
		labtest.Await(t, "counters of a connection", func() bool { // its last packet comes when it is closed
			c = n.link.counters(t, l.Addr.Addr())
			return c.TxPackets >= 4 && c.RxPackets >= 3 && c.ARPAnswered > 0
		})
		if c.Misdirected != 0 {
			t.Errorf("counters of client %d after a connection: %+v", i, c)
		}
	}
}

// neighbour is the hardware address the router has for an IP address.
func (n *network) neighbour(t *testing.T, ip netip.Addr) string {
	t.Helper()
	var out []byte
	var err error
	n.Server.Do(func() { out, err = exec.Command("ip", "neigh", "show", ip.String()).Output() })
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(out))
	for i, w := range words {
		if w == "lladdr" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return strings.TrimSpace(string(out))
}

func TestWrongHardwareAddressIsNotTaken(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	addr := labtest.Greet(t, n.Server)
	l := n.join(t, 1)
	n.join(t, 2)
	ip := l.Addr.Addr()
	n.Server.Run(t, "ip neigh replace "+ip.String()+" lladdr "+clientMAC(2).String()+" dev gwt1 nud permanent")
	if saw, err := n.visit(ip, addr, setUserTimeout); err == nil {
		t.Errorf("a connection came about over another client's hardware address: %q", saw)
	}
	if c := n.link.counters(t, ip); c.Misdirected == 0 || c.RxPackets != 0 {
		t.Errorf("counters %+v: want misdirected packets and no others", c)
	}
	n.Server.Run(t, "ip neigh replace "+ip.String()+" lladdr "+clientMAC(1).String()+" dev gwt1 nud permanent")
	if _, err := n.visit(ip, addr); err != nil {
		t.Errorf("over its own: %v", err)
	}
}

func TestAddressWithoutLeaseGetsNothing(t *testing.T) {
	n := newNetwork(t, "10.77.1.250")
	addr := labtest.Greet(t, n.Server)
	l := n.join(t, 1)
	if _, err := n.visit(nobody, addr, setUserTimeout); err == nil {
		t.Error("a connection came about from an address that nobody leased")
	}
	if r := n.link.refusals(t); r.Source == 0 {
		t.Errorf("refusals %+v: want packets from nobody's address", r)
	}
	if _, err := n.visit(labtest.ServerIP.Next(), addr); err != nil {
		t.Errorf("the host itself: %v", err)
	}
	// A client that has left is nobody again, for the router too.
	ip := l.Addr.Addr()
	n.Client.Do(func() {
		if err := n.link.Remove(ip); err != nil {
			t.Error(err)
		}
	})
	before := n.link.refusals(t).Question
	n.Server.Do(func() {
		_ = exec.Command("ping", "-c", "1", "-W", "1", ip.String()).Run() // unanswered: that is the test
	})
	if after := n.link.refusals(t); after.Question == before {
		t.Errorf("refusals %+v: want questions for the address that was given back", after)
	}
}
