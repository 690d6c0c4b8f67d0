package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// This file captures the messages of a login for the sequence diagrams that trace_test.go compares.

// wire captures packets at the client's link, at the gateway's uplink and at its loopback.
type wire struct {
	w       *world
	client  *client
	handles []*pcapgo.EthernetHandle
	readers sync.WaitGroup

	mu     sync.Mutex
	frames []frame
}

// frame is one captured packet, and the link on which it was seen.
type frame struct {
	link       string
	receivedAt time.Time
	gopacket.Packet
}

// The captured links.
const (
	lan    = "lan"
	uplink = "uplink"
	local  = "local"
)

// tap captures the packets of a client's world until the test ends.
func (w *world) tap(c *client) *wire {
	w.t.Helper()
	t := &wire{w: w, client: c}
	w.t.Cleanup(t.close)
	t.listen(c.host, "c0", lan)
	t.listen("router", "wan0", uplink)
	t.listen("router", "lo", local)
	return t
}

func (t *wire) listen(host, device, link string) {
	t.w.inHost(host, func() error {
		h, err := pcapgo.NewEthernetHandle(device)
		if err != nil {
			return err
		}
		t.handles = append(t.handles, h)
		t.readers.Go(func() {
			for {
				data, info, err := h.ReadPacketData()
				if err != nil {
					return // closed
				}
				f := frame{link, info.Timestamp, gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)}
				t.mu.Lock()
				t.frames = append(t.frames, f)
				t.mu.Unlock()
			}
		})
		return nil
	})
}

// markPort is the destination of marks: datagrams without a receiver.
const markPort = 9

// mark returns when all frames that were on the links before the call have been read: it sends one more frame on each
// link and waits for it.
func (t *wire) mark() {
	t.w.t.Helper()
	want := t.marks()
	for link, from := range map[string]struct{ host, to string }{
		lan: {t.client.host, "10.1.0.1"}, uplink: {"server", "192.0.2.1"}, local: {"router", "127.0.0.1"},
	} {
		t.w.inHost(from.host, func() error {
			c, err := net.Dial("udp4", net.JoinHostPort(from.to, strconv.Itoa(markPort)))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("mark"))
			return err
		})
		eventually(t.w.t, "a mark on the "+link, func() error {
			if t.marks()[link] <= want[link] {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

func (t *wire) marks() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks := map[string]int{}
	for _, f := range t.frames {
		if udp, ok := f.Layer(layers.LayerTypeUDP).(*layers.UDP); ok && udp.DstPort == markPort {
			marks[f.link]++
		}
	}
	return marks
}

func (t *wire) close() {
	for _, h := range t.handles {
		h.Close()
	}
	t.readers.Wait()
}

// messages returns the messages seen so far, in the order of time. A message that was sent several times, as on a busy
// machine, is in the list once. With forget the next call returns later ones only.
func (t *wire) messages(forget bool) (lines []string) {
	t.mu.Lock()
	frames := slices.Clone(t.frames)
	if forget {
		t.frames = nil
	}
	t.mu.Unlock()
	slices.SortStableFunc(frames, func(a, b frame) int { return a.receivedAt.Compare(b.receivedAt) })
	passed := map[string]bool{}          // data over TCP that was seen on the uplink
	started := map[radiusExchange]bool{} // exchanges with the RADIUS server about the session's start
	for _, f := range frames {
		if f.link == uplink {
			passed[string(f.overTCP())] = true
		}
		if e, l := f.radius(); l != nil && acctStatus(l) == acctStart {
			started[e] = true
		}
	}
	for _, f := range frames {
		if e, l := f.radius(); l != nil && isAccounting(l) && !started[e] {
			continue // Accounting-On, which is sent again to a server that is too busy to answer
		}
		if line := t.message(f, passed); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// overTCP returns the data in a TCP segment; nil: there is none.
func (f frame) overTCP() []byte {
	if tcp, ok := f.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
		return tcp.LayerPayload()
	}
	return nil
}

// message returns a frame's line in a Mermaid sequence diagram; "": it is no message of a login.
func (t *wire) message(f frame, passed map[string]bool) string {
	leases := "gateway"
	if t.w.Others {
		leases = "dnsmasq"
	}
	switch {
	case f.link == lan && f.Layer(layers.LayerTypeDHCPv4) != nil:
		l := f.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
		return between("client", leases, l.Operation == layers.DHCPOpReply, "DHCP "+dhcpKind(l))
	case f.link != local && f.Layer(layers.LayerTypeDNS) != nil:
		l := f.Layer(layers.LayerTypeDNS).(*layers.DNS)
		asks, answers := "client", leases
		if f.link == uplink {
			asks, answers = leases, "resolver"
		}
		return between(asks, answers, l.QR, dnsText(l))
	case f.isRADIUS():
		_, l := f.radius()
		return between("gateway", "RADIUS", isRADIUS(f.Layer(layers.LayerTypeUDP).(*layers.UDP).SrcPort), radiusText(l))
	case f.link == lan && len(f.overTCP()) > 0:
		text, answer := httpText(f.overTCP())
		if text == "" {
			return ""
		}
		answers := "gateway"
		if passed[string(f.overTCP())] {
			answers = "server"
		}
		return between("client", answers, answer, text)
	}
	return ""
}

// between returns the line of a question, or of its answer.
func between(asks, answers string, answer bool, text string) string {
	if answer {
		return answers + "-->>" + asks + ": " + text
	}
	return asks + "->>" + answers + ": " + text
}

func dhcpKind(l *layers.DHCPv4) string {
	for _, o := range l.Options {
		if o.Type == layers.DHCPOptMessageType {
			return layers.DHCPMsgType(o.Data[0]).String()
		}
	}
	return "without a type"
}

func dnsText(l *layers.DNS) string {
	if !l.QR || len(l.Answers) == 0 {
		return "DNS query for " + string(l.Questions[0].Name)
	}
	return fmt.Sprintf("DNS answer %s", l.Answers[0].IP)
}

// radiusExchange identifies a request to the RADIUS server, and its answer.
type radiusExchange struct {
	port layers.UDPPort // of the gateway
	id   layers.RADIUSIdentifier
}

func isRADIUS(p layers.UDPPort) bool { return p == 1812 || p == 1813 }

func (f frame) isRADIUS() bool {
	udp, ok := f.Layer(layers.LayerTypeUDP).(*layers.UDP)
	return ok && f.link == local && (isRADIUS(udp.SrcPort) || isRADIUS(udp.DstPort))
}

// radius returns the RADIUS message in a frame, and the exchange that it belongs to. The message is nil if the frame
// has none.
func (f frame) radius() (radiusExchange, *layers.RADIUS) {
	if !f.isRADIUS() {
		return radiusExchange{}, nil
	}
	udp := f.Layer(layers.LayerTypeUDP).(*layers.UDP)
	l, ok := gopacket.NewPacket(udp.Payload, layers.LayerTypeRADIUS, gopacket.Default).Layer(layers.LayerTypeRADIUS).(*layers.RADIUS)
	if !ok {
		return radiusExchange{}, nil
	}
	if isRADIUS(udp.SrcPort) {
		return radiusExchange{udp.DstPort, l.Identifier}, l
	}
	return radiusExchange{udp.SrcPort, l.Identifier}, l
}

func isAccounting(l *layers.RADIUS) bool {
	return l.Code == layers.RADIUSCodeAccountingRequest || l.Code == layers.RADIUSCodeAccountingResponse
}

const acctStart = 1 // RFC 2866, 5.1

// acctStatus returns a message's Acct-Status-Type, or 0.
func acctStatus(l *layers.RADIUS) uint32 {
	for _, a := range l.Attributes {
		if a.Type == layers.RADIUSAttributeTypeAcctStatusType {
			return binary.BigEndian.Uint32(a.Value)
		}
	}
	return 0
}

func radiusText(l *layers.RADIUS) string {
	switch {
	case l == nil:
		return "no RADIUS"
	case acctStatus(l) == acctStart:
		return l.Code.String() + " Start"
	}
	return l.Code.String()
}

// httpText describes a request or an answer by its head, without a URL's query.
func httpText(b []byte) (text string, answer bool) {
	head := bufio.NewReader(bytes.NewReader(b))
	if bytes.HasPrefix(b, []byte("HTTP/")) {
		answer, err := http.ReadResponse(head, nil)
		if err != nil {
			return "", false
		}
		text := answer.Status
		if to, _, _ := strings.Cut(answer.Header.Get("Location"), "?"); to != "" {
			text += ", to " + to
		}
		return text, true
	}
	asked, err := http.ReadRequest(head)
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%s http://%s%s", asked.Method, asked.Host, asked.URL.Path), false
}
