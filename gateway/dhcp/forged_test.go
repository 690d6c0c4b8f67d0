// Tests of who is believed about clients' places. oddMessage makes a message with any options (odd_test.go).

package dhcp

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// aRepeater is a repeater of offline's LAN.
var aRepeater = macOf(50)

// offline returns a server with relays and a repeater that has no interface. Nothing is written.
func offline(t *testing.T) *Server {
	cfg := testConfig("-")
	withRelays(&cfg)
	cfg.Repeaters = map[MAC]bool{aRepeater: true}
	cfg, err := cfg.withDefaults()
	must(t, err)
	s := &Server{cfg: cfg, log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1),
		logBudgets: budget.Senders[refusal]{Rate: budget.Minutely, Size: 1},
		naks:       budget.Senders[MAC]{Rate: budget.Minutely, Size: 1}}
	s.segments, s.relays = segments(cfg)
	s.mac = func() MAC { return macOf(9) }
	return s
}

// tell gives the server a frame, and returns the kind of its answer to a request: an ACK is not sent before it is on
// the disk.
func (s *Server) tell(t *testing.T, frame []byte) (kind dhcpv4.MessageType, err error) {
	t.Helper()
	rq, err := s.read(frame)
	if err != nil {
		return kind, err
	}
	out := s.answer(rq, time.Now())
	if out == nil {
		return dhcpv4.MessageTypeAck, nil
	}
	d, err := parseFrame(out)
	must(t, err)
	m, err := dhcpv4.FromBytes(d.payload)
	must(t, err)
	return m.MessageType(), nil
}

// place is where the client of an address is attached.
func (s *Server) place(a string) Attachment {
	if b := s.segmentOf(addr(a)).table.byAddr[addr(a)]; b != nil {
		return b.at
	}
	return Attachment{}
}

// sentBy makes a message one of a client that a relay has sent on.
func (o oddMessage) sentBy(relay netip.Addr, mac MAC) oddMessage {
	o.edit = func(b []byte) { copy(b[atGiaddr:], relay.AsSlice()); copy(b[atHardware:], mac[:]) }
	return o
}

// ofAgent is option 82.
func ofAgent(information string) []byte {
	return append([]byte{82, byte(len(information))}, information...)
}

// TestInformationOfOneSpeaker: what a client says beside a relay, in an option of its own or where relays do not look,
// is not taken for the relay's.
func TestInformationOfOneSpeaker(t *testing.T) {
	s, router := offline(t), macOf(100)
	circuit, remote := ofAgent("\x01\x01c"), ofAgent("\x02\x01x")
	inSname := []byte{52, 1, 2}
	for i, c := range []struct {
		name           string
		options, sname []byte
		circuit        string
		bad            uint64
	}{
		{"the relay's", circuit, nil, "c", 0},
		{"the client's first", slices.Concat(remote, circuit), nil, "", 1},
		{"one that leaves no room",
			slices.Concat(ofAgent("\x01\xf7"+strings.Repeat("x", MaxAgentID)+"\x09\x04any."), circuit), nil, "", 1},
		{"the client's in sname", slices.Concat(inSname, circuit), slices.Concat(remote, end), "c", 0},
		{"the client's alone, in sname", inSname, slices.Concat(remote, end), "", 0},
	} {
		wish, before := netip.AddrFrom4([4]byte{10, 1, 2, byte(10 + i)}).String(), s.Stats().BadAgent
		o := oddMessage{options: slices.Concat(isRequest, wants(wish), c.options, end), sname: c.sname}
		kind, err := s.tell(t, o.sentBy(farRelay, macOf(1+i)).frame(router, uint32(i)))
		must(t, err)
		if at := s.place(wish); kind != dhcpv4.MessageTypeAck || at != (Attachment{Circuit: c.circuit, Via: router}) ||
			s.Stats().BadAgent-before != c.bad {
			t.Errorf("%s: %s, attached at %+v, %d cannot be read", c.name, kind, at, s.Stats().BadAgent-before)
		}
	}
}

// TestRenewalBesideARelay: a client on the LAN whose relay has said where it is stays there with a renewal that it
// sends itself, but not when it begins anew without the relay, or where switches speak for those that have none.
func TestRenewalBesideARelay(t *testing.T) {
	s, mac := offline(t), macOf(1)
	asking := slices.Concat(isRequest, wants("10.1.5.1"))
	begins := oddMessage{options: slices.Concat(asking, end)}
	renews := oddMessage{options: slices.Concat(isRequest, end), uses: "10.1.5.1"}
	relayed := oddMessage{options: slices.Concat(asking, ofAgent("\x01\x01c"), end)}.sentBy(nearRelay, mac)
	for i, c := range []struct {
		frame    []byte
		switches bool
		circuit  string
	}{
		{relayed.frame(macOf(100), 1), false, "c"}, {renews.frame(mac, 2), false, "c"}, {begins.frame(mac, 3), false, ""},
		{renews.frame(mac, 4), false, ""}, {relayed.frame(macOf(100), 5), true, "c"}, {renews.frame(mac, 6), true, ""},
	} {
		s.cfg.Information = c.switches
		kind, err := s.tell(t, c.frame)
		must(t, err)
		if at := s.place("10.1.5.1"); kind != dhcpv4.MessageTypeAck || at != (Attachment{Circuit: c.circuit}) {
			t.Errorf("%d: %s, attached at %+v", i, kind, at)
		}
	}
}

// TestPretendedRelays: a client of the LAN and what is behind a repeater are no relays, and use up no budget but their
// own. By a relay nobody becomes a client behind a repeater.
func TestPretendedRelays(t *testing.T) {
	s, client := offline(t), macOf(1)
	request := func(wish string, more ...byte) oddMessage {
		return oddMessage{options: slices.Concat(isRequest, wants(wish), more, end)}
	}
	_, err := s.tell(t, request("10.1.5.1").frame(client, 1))
	must(t, err)
	for sender, payer := range map[MAC]MAC{client: client, aRepeater: aRepeater, macOf(100): macOf(2)} {
		frame := request("10.1.2.9").sentBy(farRelay, macOf(2)).frame(sender, 2)
		if got := s.payer(frame); got != payer {
			t.Errorf("%x's message uses up the budget of %x", sender, got)
		}
		if _, err := s.read(frame); errors.Is(err, errSpoofed) != (sender == payer) {
			t.Errorf("%x as a relay: %v", sender, err)
		}
	}
	behind := macOf(60)
	o := request("10.1.6.1")
	o.edit = func(b []byte) { copy(b[atHardware:], behind[:]) }
	_, err = s.tell(t, o.frame(aRepeater, 3))
	must(t, err)
	id := repeated + string(behind[:])
	o = request("10.1.6.1", append([]byte{61, byte(len(id))}, id...)...).sentBy(nearRelay, aRepeater)
	if kind, err := s.tell(t, o.frame(macOf(100), 4)); kind != dhcpv4.MessageTypeNak {
		t.Errorf("%s, %v for the address of a client behind a repeater", kind, err)
	}
}
