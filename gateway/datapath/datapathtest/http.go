package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// portHTTP are the behaviours of unauthenticated clients' packets to port 80: each reaches the portal or nobody.
var portHTTP = []behaviour{
	{"OddHTTPStays", oddHTTPStays, Shape{Switch: true}},
	{"OddHTTPStaysBare", oddHTTPStays, Shape{Bare: true, Switch: true}},
	{"HTTPEndsAtOnce", httpEndsAtOnce, Shape{}},
	{"OthersMarkHTTP", othersMark, Shape{}},
	{"PortIsUsedAgain", portUsedAgain, Shape{}},
}

// oddHTTPStays: segments to port 80 that belong to no connection and could not begin one are not forwarded, whatever
// the kernel's connection tracking makes of them. They also do not reach other HTTP servers at the gateway.
func oddHTTPStays(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	server, lan := NewWire(t, w.Server, serverLink), NewWire(t, w.Bob.Space, clientLink)
	w.expectDropped(t, lan, server, oddHTTP(w), w.Up(t, w.Alice))
	tiny := TCP(80, By(w.Bob), SourcePort(42000), Flags("FPU"))
	began := len(server.Frames())
	for _, order := range [][]int{{0, 8, 16}, {16, 8, 0}} {
		for _, index := range order {
			lan.Send(t, piece(tiny, index, min(index+8+index/16*200, len(tiny)-34)))
		}
	}
	w.sendReference(t, w.Up(t, w.Alice), 20)
	if n := slices.IndexFunc(server.Frames()[began:], func(f []byte) bool { return !isMark(f) && !isARP(f) }); n >= 0 {
		t.Errorf("of tiny fragments came through:\n%s", anatomy(server.Frames()[began+n]))
	}
}

// oddHTTP returns Bob's segments to port 80 that belong to no connection.
func oddHTTP(w *World) map[string]attempt {
	all, port := map[string]attempt{}, uint16(41000)
	add := func(name, reasons string, change func([]byte) []byte, edits ...func(*Frame)) {
		port++
		frame := TCP(80, append([]func(*Frame){By(w.Bob), SourcePort(port)}, edits...)...)
		if change != nil {
			frame = change(frame)
		}
		all[name] = attempt{frame, reasons}
	}
	const one = "portal+ rejected+ blocked"
	for _, f := range []string{"", "A", "F", "FA", "R", "RA", "SF", "SR", "FPU", "SFRPAU"} {
		add("flags "+f, one, nil, Flags(f))
		add("without data, flags "+f, one, nil, Flags(f), Carrying(nil))
	}
	add("IP options", one, nil, Options, Flags("F"))
	add("the last hop", one+" -", nil, TTL(1), Flags("F"))
	add("to the router's other address", one, nil, To(RouterWAN), Flags("FPU"))
	add("sent to all", one+" -", nil, Via(everybody), Flags("FPU"))
	add("a wrong sum of TCP", one+" -", func(b []byte) []byte { b[50] ^= 0xff; return b })
	add("a header of 60 bytes", one+" -", func(b []byte) []byte { b[46] = 0xf0; return b })
	add("a header of 4 bytes", one+" -", func(b []byte) []byte { b[46] = 0x10; return b })
	for _, n := range []int{4, 8, 14, 19} {
		add("cut to "+string(rune('0'+n/10))+string(rune('0'+n%10)), one+" -", func(b []byte) []byte { return cutTo(b, n) })
	}
	return all
}

// Flags sets exactly these flags of a TCP segment, by their initials.
func Flags(initials string) func(*Frame) {
	return func(f *Frame) {
		l := f.L4.(*layers.TCP)
		for initial, flag := range map[byte]*bool{
			'F': &l.FIN, 'S': &l.SYN, 'R': &l.RST, 'P': &l.PSH, 'A': &l.ACK, 'U': &l.URG} {
			*flag = bytes.IndexByte([]byte(initials), initial) >= 0
		}
	}
}

// cutTo returns a built frame without IP options, cut to n bytes after its IP header, whose length and checksum fit.
func cutTo(b []byte, n int) []byte {
	b = bytes.Clone(b[:34+n])
	binary.BigEndian.PutUint16(b[16:], uint16(20+n))
	return resum(b)
}

// piece returns a fragment of a built frame without IP options: the bytes from one offset after its IP header to
// another, both multiples of 8 except the end.
func piece(b []byte, from, to int) []byte {
	f := cutTo(append(bytes.Clone(b[:34]), b[34+from:34+to]...), to-from)
	offset := uint16(from / 8)
	if 34+to < len(b) {
		offset |= 0x2000 // more fragments
	}
	binary.BigEndian.PutUint16(f[18:], 77)
	binary.BigEndian.PutUint16(f[20:], offset)
	return resum(f)
}

// httpEndsAtOnce: after logout a client's connection to a site's port 80 from before carries nothing more, to the site
// or to the portal. It is reset, so that the browser connects again.
func httpEndsAtOnce(t *testing.T, w *World) {
	for _, s := range []netip.Addr{Server, Second} {
		w.admit(t, w.Alice)
		x := w.NewStreamTo(t, w.Alice, netip.AddrPortFrom(s, 80))
		x.Begin(x.Client)
		x.Passes(t, "HTTP of an admitted client")
		must(t, w.Set(w.Alice.client()))
		stopped(t, "after logout", x)
		netnstest.Await(t, "a reset", func() error {
			if info(t, x.Client).State == unix.BPF_TCP_ESTABLISHED {
				return errors.New("the connection goes on")
			}
			return nil
		})
	}
}

// othersMark: rules of the administrator that mark every packet and connection, as for policy routing, neither admit
// unauthenticated clients nor block admitted ones.
func othersMark(t *testing.T, w *World) {
	w.Router.Run(t, `iptables -t mangle -A PREROUTING -j MARK --set-mark 1; iptables -t mangle -A PREROUTING -j CONNMARK --save-mark
iptables -t mangle -A FORWARD -j MARK --set-mark 2; iptables -t mangle -A OUTPUT -j MARK --set-mark 3`)
	t.Cleanup(func() { w.Router.Run(t, "iptables -t mangle -F") })
	for _, b := range []behaviour{
		{"the portal", portal, Shape{}}, {"odd HTTP", oddHTTPStays, Shape{}}, {"logout", httpEndsAtOnce, Shape{}}} {
		t.Run(b.name, func(t *testing.T) { b.check(t, w) })
	}
}

// portUsedAgain: an unauthenticated client uses one port for one site, then for another and again for the first; each
// time the portal answers from the requested site's address.
func portUsedAgain(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	for _, to := range []netip.Addr{Server, Second, Server, Garden, Second} {
		got, err := ask(w.Bob, 40404, to)
		if !strings.Contains(got, "portal: "+w.Bob.Addr.String()+":") || err != nil {
			t.Errorf("HTTP to %s from a port that was used before: %q, %v", to, got, err)
		}
	}
}

// ask is get from a given port of the station, and waits while the port is in use: a process that was just started
// holds copies of all connections, and with them the port, until it executes its program.
func ask(s Station, from uint16, to netip.Addr) (string, error) {
	var c *net.TCPConn
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err = dialFrom(s.Space, netip.AddrPortFrom(s.Addr, from), netip.AddrPortFrom(to, 80))
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetLinger(0) // a reset, which leaves no state on either side
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n")); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	return string(b[:n]), err
}
