// Tests of links over wires that lose and repeat frames, and of peers that do not keep to the protocol. join makes two
// ends, and run delivers their frames (link_test.go).

package ppp

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// TestRepeatedFrames: a wire that delivers everything twice opens a link as one that does not.
func TestRepeatedFrames(t *testing.T) {
	for _, method := range Methods {
		p := join(Config{Methods: []Method{method}, IPv6: true},
			Config{User: "ann", Password: "right", AskDNS: true, IPv6: true}, "right")
		p.run(time.Minute, func() int { return 1 })
		acks := p.server.link.control.sent
		p.server.link.Receive(p.now, Frame(LCP, Packet{ConfigureAck, p.server.link.control.asked, acks}))
		p.carry(once)
		if p.server.closed != nil || p.server.link.control.state != opened {
			t.Errorf("%s: a repeated Configure-Ack ended the link: %v", method, p.server.closed)
		}
	}
}

// TestLostAck: a client that misses the acknowledgement of its LCP request asks again and opens.
func TestLostAck(t *testing.T) {
	for _, method := range Methods {
		p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "right"}, "right")
		p.server.link.Open(p.now)
		p.client.link.Open(p.now)
		for range 4 { // all that the server sends but its Configure-Request is lost
			up, down := p.client.out, p.server.out
			p.client.out, p.server.out = nil, nil
			for _, f := range up {
				p.server.link.Receive(p.now, f)
			}
			for _, f := range down {
				if Code(f[protocolLen]) == ConfigureRequest {
					p.client.link.Receive(p.now, f)
				}
			}
		}
		if p.server.link.control.state != opened {
			t.Fatalf("%s: the server is in state %d", method, p.server.link.control.state)
		}
		p.run(time.Minute, once)
		if p.server.closed != nil || len(p.server.opened) == 0 || len(p.client.opened) == 0 {
			t.Errorf("%s: %v, %v", method, p.server.closed, p.client.closed)
		}
	}
}

// TestUnknownCode: a code that is rejected during the negotiation does not disturb it.
func TestUnknownCode(t *testing.T) {
	p := join(Config{}, Config{User: "ann", Password: "right"}, "right")
	p.server.link.Open(p.now)
	p.server.link.Receive(p.now, Frame(LCP, Packet{12, 1, make([]byte, 1480)}))
	for _, f := range p.server.out {
		if len(f) > protocolLen+1492 {
			t.Errorf("a frame of %d bytes", len(f))
		}
	}
	p.run(time.Second, once) // no timer expires in it
	if len(p.client.opened) == 0 {
		t.Errorf("not open: %v, %v", p.server.closed, p.client.closed)
	}
}

// TestRejectionFits: a rejection that quotes a long frame is no longer than the peer accepts.
func TestRejectionFits(t *testing.T) {
	p := join(Config{}, Config{User: "ann", Password: "right"}, "right")
	p.run(time.Minute, once)
	for _, proto := range []Protocol{IPV6CP, 0x8053} {
		p.server.link.Receive(p.now, Frame(proto, Packet{ConfigureRequest, 1, make([]byte, 1488)}))
	}
	if len(p.server.out) != 2 {
		t.Fatalf("%d rejections", len(p.server.out))
	}
	for _, f := range p.server.out {
		if len(f) > protocolLen+1492 {
			t.Errorf("a frame of %d bytes", len(f))
		}
	}
}

// TestRepliesFit: no answer is longer than the client's MRU, whatever it asks, and whatever it is told of its login.
func TestRepliesFit(t *testing.T) {
	for _, mru := range []int{128, 576, 1492} {
		for _, method := range Methods {
			for _, password := range []string{"right", "wrong"} {
				p := join(Config{Methods: []Method{method}, Name: strings.Repeat("n", 255)},
					Config{User: "ann", Password: password, MRU: mru}, "right")
				decide := p.server.decide
				p.server.decide = func(c Credentials) (Grant, bool) {
					g, ok := decide(c)
					g.Message = strings.Repeat("m", 253)
					return g, ok
				}
				p.run(time.Minute, once)
				if up := len(p.client.opened) > 0; up != (password == "right") {
					t.Errorf("%s, %d bytes, %s: up is %v: %v", method, mru, password, up, p.client.closed)
				}
				magic := binary.BigEndian.AppendUint32(nil, 0x11223344)
				for _, f := range [][]byte{
					Frame(LCP, Packet{EchoRequest, 65, append(magic, make([]byte, 1404)...)}),
					Frame(LCP, Packet{99, 66, make([]byte, 1404)}),
					Frame(0x8053, Packet{ConfigureRequest, 67, make([]byte, 1404)}),
					Frame(IPV6CP, Packet{ConfigureRequest, 68, make([]byte, 1404)}),
				} {
					before := len(p.server.out)
					p.server.link.Receive(p.now, f)
					if password == "right" && len(p.server.out) != before+1 {
						t.Errorf("no answer to % x", f[:6])
					}
				}
				if p.server.longest > mru {
					t.Errorf("%s, %s: %d bytes to a client that takes %d", method, password, p.server.longest, mru)
				}
			}
		}
	}
}

// TestSecondLogin: a client that begins anew while its login is decided does not get the answer.
func TestSecondLogin(t *testing.T) {
	p := join(Config{Methods: []Method{MethodPAP}}, Config{User: "ann", Password: "right"}, "right")
	p.server.decide = nil
	p.run(time.Second, once)
	if len(p.server.asked) != 1 {
		t.Fatalf("asked %+v", p.server.asked)
	}
	p.server.link.Receive(p.now, Frame(LCP, Packet{ConfigureRequest, 99, nil}))
	p.server.link.Decide(p.now, true, Grant{Addr: assigned})
	if p.server.closed == nil || p.server.link.started {
		t.Error("the link goes on")
	}
}
