package ppp

import (
	"encoding/binary"
	"testing"
	"time"
)

// FuzzLink: whatever a client sends, a server gives no address to one that has not logged in, and answers each frame
// with a few at most.
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
				t.Fatal("open without a login")
			}
		}
	})
}

// until carries frames of one protocol between two ends until the server is in a state.
func (p *pair) until(t *testing.T, proto Protocol, there func() bool) {
	p.server.link.Open(p.now)
	p.client.link.Open(p.now)
	for range 100 {
		up, down := p.client.out, p.server.out
		p.client.out, p.server.out = nil, nil
		for from, to := range map[*[][]byte]*end{&up: &p.server, &down: &p.client} {
			for _, frame := range *from {
				if current, _, err := SplitFrame(frame); err == nil && current == proto && !there() {
					to.link.Receive(p.now, frame)
				}
			}
		}
		if there() {
			return
		}
	}
	t.Fatal("the two ends do not agree")
}

// feed has a server receive what a fuzzer made: packets of up to 64 bytes, each after a byte that chooses
// its protocol. Each is answered by a few frames at most.
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

// FuzzLogin: once the link is agreed on, no packet logs in that does not have the password.
func FuzzLogin(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 14, 3, 'a', 'n', 'n', 5, 'w', 'r', 'o', 'n', 'g'})
	f.Add([]byte{1, 2, 1, 0, 24, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 'a', 'n', 'n'})
	f.Add(append([]byte{1, 2, 1, 0, 57, 49}, make([]byte, 52)...))
	f.Add([]byte{2, 5, 9, 0, 4})
	f.Fuzz(func(t *testing.T, packets []byte) {
		for _, method := range Methods {
			p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "no password", Methods: []Method{method}},
				"right")
			p.until(t, LCP, func() bool { return p.server.link.control.state == opened })
			p.feed(t, []Protocol{PAP, CHAP, LCP, IPCP}, packets)
			if len(p.server.opened) > 0 || p.server.link.started {
				t.Fatalf("%s: logged in by %x: %+v", method, packets, p.server.asked)
			}
		}
	})
}

// FuzzNetwork: whatever a client that has logged in sends, it has the address that it was given, or none.
func FuzzNetwork(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 10, 3, 6, 10, 1, 0, 99})
	f.Add([]byte{0, 1, 1, 0, 22, 3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0, 131, 6, 0, 0, 0, 0})
	f.Add([]byte{1, 1, 1, 0, 14, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 1, 0, 4})
	f.Add([]byte{0, 5, 1, 0, 4})
	f.Fuzz(func(t *testing.T, packets []byte) {
		p := join(Config{IPv6: true, EchoInterval: time.Second}, Config{User: "ann", Password: "right", IPv6: true}, "right")
		p.run(time.Second, once)
		if len(p.server.opened) == 0 {
			t.Fatal("not open")
		}
		p.feed(t, []Protocol{IPCP, IPV6CP, LCP, 0x80fd, 0x0057}, packets)
		for _, terms := range p.server.opened {
			if terms.Peer != assigned || terms.Local != gateway {
				t.Fatalf("agreed on %+v", terms)
			}
		}
	})
}
