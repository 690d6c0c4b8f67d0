package datapathtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// beforeLogin are the behaviours of a known client that is not admitted: what it may reach, and what answers it.
var beforeLogin = []behaviour{
	{"ServicesBeforeLogin", machineBeforeLogin, Shape{}},
	{"ServicesBeforeLoginBare", machineBeforeLogin, Shape{Bare: true}},
	{"HTTPGoesToThePortal", portal, Shape{}},
	{"HTTPGoesToThePortalBare", portal, Shape{Bare: true}},
	{"TheRestIsRejected", rejected, Shape{}},
	{"TheRestIsRejectedBare", rejected, Shape{Bare: true}},
	{"GardenOpensAndCloses", garden, Shape{}},
	{"GardenByPort", gardenByPort, Shape{}},
	{"VisitsOfOneDevice", visitsOfOneDevice, Shape{}},
	{"DHCPComesThrough", dhcp, Shape{}},
}

// exchange sends a datagram and returns the answer.
func exchange(s Station, to netip.AddrPort, text string) (string, error) {
	var conn net.Conn
	var err error
	s.Do(func() {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: s.Addr.AsSlice()}}
		conn, err = d.Dial("udp4", to.String())
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	b := make([]byte, 2000)
	for range 5 { // a datagram may be lost during address resolution
		if _, err = conn.Write([]byte(text)); err != nil {
			return "", err
		}
		conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		var n int
		if n, err = conn.Read(b); err == nil {
			return string(b[:n]), nil
		}
		if !errors.Is(err, unix.ETIMEDOUT) && !isTimeout(err) {
			return "", err
		}
	}
	return "", err
}

// isTimeout reports whether an error is a timeout, and not a refusal.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// machineBeforeLogin: before login a client reaches DNS and ping at the gateway, and no other port of its machine.
func machineBeforeLogin(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	dns := netip.AddrPortFrom(Gateway, dnsPort)
	if got, err := exchange(w.Bob, dns, "who is it"); got != "who is it" || err != nil {
		t.Errorf("DNS over UDP: %q, %v", got, err)
	}
	if got, err := talk(w.Bob, dns, "who is it"); got != "who is it" || err != nil {
		t.Errorf("DNS over TCP: %q, %v", got, err)
	}
	says(t, w.Bob.Space, "ping -c 1 -W 5 10.1.0.1", "1 received")
	for _, addr := range []netip.Addr{Gateway, RouterWAN} {
		if got, err := talk(w.Bob, netip.AddrPortFrom(addr, machinePort), "let me in"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a port of the machine at %s before login: %q, %v", addr, got, err)
		}
	}
	w.admit(t, w.Bob)
	if got, err := talk(w.Bob, netip.AddrPortFrom(Gateway, machinePort), "let me in"); got != "let me in" || err != nil {
		t.Errorf("a port of the machine after login: %q, %v", got, err)
	}
}

// talk connects, sends a text and returns an answer of the same length.
func talk(s Station, to netip.AddrPort, text string) (string, error) {
	c, err := dial(s.Space, s.Addr, to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// get requests a page from an address.
func get(s Station, to netip.Addr) (string, error) { return getAt(s, netip.AddrPortFrom(to, 80)) }

// getAt is get at any port.
func getAt(s Station, to netip.AddrPort) (string, error) {
	return talk(s, to, "GET / HTTP/1.1\r\nHost: www.example.org\r\nConnection: close\r\n\r\n")
}

// portal: before login the portal answers HTTP to any address. It sees the client's own address, and its answers come
// from the site's address. After login the site itself answers.
func portal(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	site := listen(t, w.Server, netip.AddrPortFrom(Server, 80))
	go answerAll(site)
	for _, to := range []netip.Addr{Server, Second, netip.MustParseAddr("203.0.113.80")} {
		got, err := get(w.Bob, to)
		if !strings.Contains(got, "portal: "+w.Bob.Addr.String()+":") || !strings.Contains(got, "wants www.example.org") ||
			err != nil {
			t.Errorf("HTTP for %s before login: %q, %v", to, got, err)
		}
	}
	for range 50 { // one after the other, from different ports
		if got, err := get(w.Bob, Server); !strings.Contains(got, "portal: ") || err != nil {
			t.Fatalf("HTTP before login: %q, %v", got, err)
		}
	}
	if got, err := talk(w.Bob, netip.AddrPortFrom(Gateway, portalPort),
		"GET / HTTP/1.1\r\nHost: portal\r\n\r\n"); !strings.Contains(got, "portal: "+w.Bob.Addr.String()) || err != nil {
		t.Errorf("the portal itself: %q, %v", got, err)
	}
	if n := w.Packets(t)["portal"]; n == 0 {
		t.Error("nothing was counted as for the portal")
	}
	w.admit(t, w.Bob)
	if got, err := get(w.Bob, Server); got != "the site itself" || err != nil {
		t.Errorf("HTTP after login: %q, %v", got, err)
	}
	w.lease(t, w.Bob)
	if got, err := get(w.Bob, Server); !strings.Contains(got, "portal: ") || err != nil {
		t.Errorf("HTTP after logout: %q, %v", got, err)
	}
}

// answerAll is the site: it answers every connection with a text, until the listener is closed.
func answerAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Read(make([]byte, 4096))
		c.Write([]byte("the site itself"))
		c.Close()
	}
}

// rejected: packets that may not pass are answered at once, so that no program waits.
func rejected(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	for _, to := range []netip.Addr{Server, netip.MustParseAddr("203.0.113.80")} {
		if got, err := talk(w.Bob, netip.AddrPortFrom(to, 443), "hello"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("HTTPS to %s: %q, %v", to, got, err)
		}
		if got, err := exchange(w.Bob, netip.AddrPortFrom(to, 443), "hello"); !errors.Is(err, unix.EHOSTUNREACH) &&
			!errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("UDP to %s: %q, %v", to, got, err)
		}
	}
	w.admit(t, w.Bob)
	x := w.NewStream(t, w.Bob, Server)
	x.Begin(x.Client)
	x.Passes(t, "after login")
	w.lease(t, w.Bob)
	netnstest.Await(t, "a reset of a connection of a client that is logged out", func() error {
		x.Client.SetWriteDeadline(time.Now().Add(time.Millisecond))
		if _, err := x.Client.Write([]byte("x")); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return fmt.Errorf("writing: %v", err)
		}
		return nil
	})
}

// garden: a prefix is open until its end and no longer, for all protocols, also for existing connections.
func garden(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	const prefix = "198.51.100.0/25"
	at80 := listen(t, w.Server, netip.AddrPortFrom(Garden, 80))
	go answerAll(at80)
	must(t, w.OpenGarden(prefix, time.Now().Add(time.Hour)))
	if got, err := get(w.Bob, Garden); got != "the site itself" || err != nil {
		t.Errorf("HTTP to the garden: %q, %v", got, err)
	}
	if got, err := get(w.Bob, Beside); !strings.Contains(got, "portal: ") || err != nil {
		t.Errorf("HTTP beside the garden: %q, %v", got, err)
	}
	says(t, w.Bob.Space, "ping -c 1 -W 5 198.51.100.9", "1 received")
	up, down := NewFlow(t, w.Bob.Space, w.Bob.Addr, w.Server, Garden),
		NewFlow(t, w.Server, Garden, w.Bob.Space, w.Bob.Addr)
	up.Begin()
	down.Begin()
	x := w.NewStream(t, w.Bob, Garden)
	x.Begin(x.Client)
	both := func(label string) { up.Passes(t, label); down.Passes(t, label) }
	none := func(label string) { up.Stops(t, label); down.Stops(t, label) }
	both("the garden is open")
	x.Passes(t, "the garden is open")
	if n := w.Packets(t)["garden"]; n == 0 {
		t.Error("nothing was counted as the garden's")
	}
	must(t, w.OpenGarden(prefix, time.Now().Add(-time.Second)))
	none("the garden was closed")
	stopped(t, "the garden was closed", x)
	must(t, w.OpenGarden(prefix, time.Time{}))
	both("the garden is open for ever")
	end := passesUntil(t, 300*time.Millisecond, func(end time.Time) { must(t, w.OpenGarden(prefix, end)) }, up, down)
	time.Sleep(time.Until(end) + 50*time.Millisecond)
	none("the garden's time is over")
	must(t, w.OpenGarden("198.51.100.0/24", time.Time{}))
	both("a garden is open around the one that has ended")
	if c := w.tally(t, w.Bob); c != (tally{}) {
		t.Errorf("the garden was counted: %+v", c)
	}
}

// gardenByPort: single ports can be opened, and shut within a prefix that is open. HTTP to a port that is not open goes
// to the portal.
func gardenByPort(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	go answerAll(listen(t, w.Server, netip.AddrPortFrom(Garden, 80)))
	go answerAll(listen(t, w.Server, netip.AddrPortFrom(Beside, 80)))
	go answerAll(listen(t, w.Server, netip.AddrPortFrom(Beside, 8443)))
	openPort := func(addr netip.Addr, port uint16, shut bool, until time.Time) {
		t.Helper()
		must(t, w.OpenPort(
			datapath.GardenPort{Prefix: netip.PrefixFrom(addr, 32), Protocol: 6, Port: port, Shut: shut}, until))
	}
	at := func(label string, a netip.AddrPort, want string) {
		t.Helper()
		got, err := getAt(w.Bob, a)
		if want == "" && err == nil || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %s answers %q, %v", label, a, got, err)
		}
	}
	garden, http, other := netip.AddrPortFrom(Garden, 80), netip.AddrPortFrom(Beside, 80), netip.AddrPortFrom(Beside, 8443)
	at("nothing is open", garden, "portal: ")
	at("nothing is open", other, "")
	openPort(Beside, 8443, false, time.Time{})
	at("one port is open", other, "the site itself")
	at("one port is open", http, "portal: ")
	must(t, w.OpenGarden("198.51.100.0/24", time.Time{}))
	must(t, w.OpenGarden(netip.PrefixFrom(Beside, 32).String(), time.Time{}))
	at("all is open", garden, "the site itself")
	at("all is open", http, "the site itself")
	openPort(Garden, 80, true, time.Now().Add(time.Hour))
	at("HTTP is shut", garden, "portal: ")
	at("HTTP is shut elsewhere", http, "the site itself")
	says(t, w.Bob.Space, "ping -c 1 -W 5 "+Garden.String(), "1 received")
	openPort(Garden, 80, false, time.Time{})
	at("what is shut is opened", garden, "portal: ")
	openPort(Garden, 80, true, time.Now().Add(-time.Second))
	at("HTTP is shut no longer", garden, "the site itself")
}

// dhcp: a client reaches DHCP, whatever its state and whatever address it sends from.
func dhcp(t *testing.T, w *World) {
	lan := NewWire(t, w.Intruder.Space, clientLink)
	discover := func(id uint32) []byte {
		return UDP(67, SourcePort(68), From(netip.IPv4Unspecified(), w.Intruder.MAC),
			To(netip.MustParseAddr("255.255.255.255")), Via(everybody), Carrying(bootp(id)))
	}
	renew := func(id uint32, s Station) []byte {
		return UDP(67, SourcePort(68), By(s), To(Gateway), Carrying(bootp(id)))
	}
	rebind := func(id uint32, from string, s Station) []byte {
		s.Addr = netip.MustParseAddr(from)
		return UDP(67, SourcePort(68), By(s), To(netip.MustParseAddr("255.255.255.255")), Via(everybody), Carrying(bootp(id)))
	}
	w.lease(t, w.Bob)
	w.admit(t, w.Alice)
	lan.Send(t, discover(1), renew(2, w.Intruder), renew(3, w.Bob), renew(4, w.Alice),
		// From an address of a network where it was before, or that another client has meanwhile.
		rebind(5, "192.168.1.77", w.Intruder), rebind(6, "192.168.1.77", w.Bob), rebind(7, "192.168.1.77", w.Alice),
		rebind(8, w.Alice.Addr.String(), w.Intruder), rebind(9, w.Alice.Addr.String(), w.Bob),
		rebind(10, w.Bob.Addr.String(), w.Alice),
		renew(11, Station{MAC: w.Intruder.MAC, Addr: netip.MustParseAddr("192.168.1.77")}),
		renew(12, Station{MAC: w.Bob.MAC, Addr: w.Alice.Addr}))
	netnstest.Await(t, "DHCP", func() error {
		seen := w.Seen(t)
		for id := uint32(1); id <= 12; id++ {
			if w.path.Requests {
				if seen.FrameDHCP[id] != 1 || seen.PacketDHCP[id]+seen.SocketDHCP[id] != 0 {
					return fmt.Errorf("handed over were %v; sockets saw %v and %v", seen.FrameDHCP, seen.PacketDHCP, seen.SocketDHCP)
				}
				continue
			}
			if seen.PacketDHCP[id] != 1 {
				return fmt.Errorf("a packet socket saw %v", seen.PacketDHCP)
			}
			if w.path.DHCPSocket && seen.SocketDHCP[id] != 1 {
				return fmt.Errorf("a UDP socket saw %v", seen.SocketDHCP)
			}
		}
		return nil
	})
	if c := w.tally(t, w.Alice); c != (tally{}) {
		t.Errorf("DHCP was counted: %+v", c)
	}
}
