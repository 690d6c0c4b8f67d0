// Fuzz tests of a server's end, to which any packets are sent. join makes two ends of a link, and run delivers their
// frames (link_test.go).

package ppp

import (
	"encoding/binary"
	"testing"
	"time"
)

// The fuzz tests of links, each on a pair of ends: join (link_test.go) makes a server and a client from their
// configurations. The client's user is ann; join's last argument is the password that the server accepts.

// FuzzLink: whatever a client sends, a server opens no network for one that has not logged in, and answers each frame
// with 4 frames at most.
func FuzzLink(f *testing.F) {
	f.Add([]byte{0xc0, 0x21, 1, 1, 0, 10, 5, 6, 1, 2, 3, 4})
	f.Add([]byte{0xc0, 0x23, 1, 1, 0, 8, 1, 'a', 1, 'b'})
	f.Add([]byte{0x80, 0x21, 1, 1, 0, 10, 3, 6, 0, 0, 0, 0})
	f.Add([]byte{0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0})
	f.Add([]byte{0xc2, 0x23, 2, 1, 0, 5, 0})
	f.Fuzz(func(t *testing.T, frames []byte) {
		for _, method := range Methods {
			p := join(Config{Methods: []Method{method}, IPv6: true}, Config{}, "right")
			p.server.decide = func(Credentials) (Grant, bool) { return Grant{Message: "no"}, false }
			p.server.link.Open(p.now)
			for b := frames; len(b) > 0; {
				n := min(len(b), 64)
				before := len(p.server.out)
				p.server.link.Receive(p.now, b[:n])
				if sent := len(p.server.out) - before; sent > 4 {
					t.Fatalf("%d frames answer one", sent)
				}
				p.now = p.now.Add(time.Second)
				p.server.link.Tick(p.now)
				b = b[n:]
			}
			if len(p.server.opened) > 0 {
				t.Fatal("a network is open without a login")
			}
		}
	})
}

// carryUntil opens both ends and carries frames of one protocol between them until reached returns true.
func (p *pair) carryUntil(t *testing.T, proto Protocol, reached func() bool) {
	p.server.link.Open(p.now)
	p.client.link.Open(p.now)
	for range 100 {
		up, down := p.client.out, p.server.out
		p.client.out, p.server.out = nil, nil
		for from, to := range map[*[][]byte]*end{&up: &p.server, &down: &p.client} {
			for _, frame := range *from {
				if current, _, err := SplitFrame(frame); err == nil && current == proto && !reached() {
					to.link.Receive(p.now, frame)
				}
			}
		}
		if reached() {
			return
		}
	}
	t.Fatal("the two ends do not agree")
}

// feed sends a server the packets that a fuzzer made: up to 64 bytes each, after a byte that chooses the protocol. It
// fails the test if the server answers one with more than 6 frames.
func (p *pair) feed(t *testing.T, protocols []Protocol, packets []byte) {
	for b := packets; len(b) > 1 && p.server.closed == nil; {
		n := min(len(b)-1, 64)
		frame := binary.BigEndian.AppendUint16(nil, uint16(protocols[int(b[0])%len(protocols)]))
		before := len(p.server.out)
		p.server.link.Receive(p.now, append(frame, b[1:1+n]...))
		if sent := len(p.server.out) - before; sent > 6 {
			t.Fatalf("%d frames answer one", sent)
		}
		p.now = p.now.Add(time.Second)
		p.server.link.Tick(p.now)
		b = b[1+n:]
	}
}

// FuzzLogin: after both ends have agreed on the link (LCP), no packet of a client that does not know the password logs
// it in.
func FuzzLogin(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 14, 3, 'a', 'n', 'n', 5, 'w', 'r', 'o', 'n', 'g'})
	f.Add([]byte{1, 2, 1, 0, 24, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 'a', 'n', 'n'})
	f.Add(append([]byte{1, 2, 1, 0, 57, 49}, make([]byte, 52)...))
	f.Add([]byte{2, 5, 9, 0, 4})
	f.Fuzz(func(t *testing.T, packets []byte) {
		for _, method := range Methods {
			p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "no password", Methods: []Method{method}},
				"right")
			p.carryUntil(t, LCP, func() bool { return p.server.link.control.state == opened })
			p.feed(t, []Protocol{PAP, CHAP, LCP, IPCP}, packets)
			if len(p.server.opened) > 0 || p.server.link.started {
				t.Fatalf("%s: logged in by %x: %+v", method, packets, p.server.asked)
			}
		}
	})
}

// FuzzNetwork: whatever a client that has logged in sends, the two ends agree on the address that the server assigned,
// or on none, and so on its interface identifier.
func FuzzNetwork(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 10, 3, 6, 10, 1, 0, 99})
	f.Add([]byte{0, 1, 1, 0, 22, 3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0, 131, 6, 0, 0, 0, 0})
	f.Add([]byte{1, 1, 1, 0, 14, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 1, 0, 4})
	f.Add([]byte{0, 5, 1, 0, 4})
	f.Add([]byte{1, 1, 2, 0, 14, 1, 10, 0, 0, 0, 0, 0, 0, 0, 5})
	own := [8]byte{7: 1}
	f.Fuzz(func(t *testing.T, packets []byte) {
		for _, given := range [][8]byte{{}, {7: 0x77}} {
			p := join(Config{IPv6: true, InterfaceID: own, EchoInterval: time.Second},
				Config{User: "ann", Password: "right", IPv6: true}, "right")
			p.given = given
			p.run(time.Second, once) // each frame arrives once
			if len(p.server.opened) == 0 {
				t.Fatal("not open")
			}
			p.feed(t, []Protocol{IPCP, IPV6CP, LCP, 0x80fd, 0x0057}, packets)
			for _, terms := range p.server.opened {
				if terms.Peer != assigned || terms.Local != gateway || terms.PeerID == own ||
					given != [8]byte{} && terms.PeerID != given && terms.PeerID != [8]byte{} {
					t.Fatalf("agreed on %+v", terms)
				}
			}
		}
	})
}
