package delegation

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// scene is a machine with a time that tests choose.
type scene struct {
	*machine
	now  time.Time
	sent []sentMessage
}

type sentMessage struct {
	at time.Time
	*dhcpv6.Message
}

var (
	ownDUID     = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 1}
	firstServer = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 2}
	otherServer = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 3}
	prefixA     = netip.MustParsePrefix("2001:db8:a::/56")
	prefixB     = netip.MustParsePrefix("2001:db8:b::/56")
)

// newScene starts a machine at a time with known prefixes.
func newScene(wanted int, known ...Prefix) *scene {
	s := &scene{machine: newMachine(identity{DUID: ownDUID, IAID: 8}, wanted, 56, rand.New(rand.NewPCG(1, 2))),
		now: time.Unix(1_000_000_000, 0)}
	for i := range known {
		known[i].PreferredUntil, known[i].ValidUntil = s.now.Add(500*time.Second), s.now.Add(1000*time.Second)
	}
	var server []byte
	if len(known) > 0 {
		server = firstServer
	}
	s.start(s.now, known, server)
	return s
}

// pass lets time pass. It returns the messages that the machine sends meanwhile.
func (s *scene) pass(t *testing.T, d time.Duration) []sentMessage {
	t.Helper()
	end, before := s.now.Add(d), len(s.sent)
	for {
		for b := s.tick(s.now); b != nil; b = s.tick(s.now) {
			m, err := dhcpv6.MessageFromBytes(b)
			if err != nil {
				t.Fatal(err)
			}
			s.sent = append(s.sent, sentMessage{s.now, m})
			if len(s.sent) > 10_000 {
				t.Fatal("the machine sends without end")
			}
		}
		due := s.due()
		if due.IsZero() || due.After(end) {
			s.now = end
			return s.sent[before:]
		}
		if due.Before(s.now) {
			t.Fatalf("due is %v, before %v", due, s.now)
		}
		s.now = due
	}
}

// next lets time pass until the machine sends something, at most for a day.
func (s *scene) next(t *testing.T) sentMessage {
	t.Helper()
	end := s.now.Add(24 * time.Hour)
	for before := len(s.sent); len(s.sent) == before; {
		if !s.now.Before(end) || s.due().IsZero() {
			t.Fatalf("nothing is sent; the state is %+v", s.state(s.now))
		}
		s.pass(t, max(s.due().Sub(s.now), 0))
	}
	return s.sent[len(s.sent)-1]
}

// reply is what a server answers to the last message. Its zero value delegates nothing.
type reply struct {
	server  []byte // nil: firstServer
	status  iana.StatusCode
	ia      []dhcpv6.Option // of one IA_PD for each wanted prefix
	options []dhcpv6.Option // of the message
	change  func(*dhcpv6.Message)
}

// association is an IA_PD with T1 = 100 s and T2 = 160 s.
func (s *scene) association(number int, options ...dhcpv6.Option) *dhcpv6.OptIAPD {
	ia := &dhcpv6.OptIAPD{T1: 100 * time.Second, T2: 160 * time.Second}
	binary.BigEndian.PutUint32(ia.IaId[:], s.iaid(number))
	ia.Options.Options = options
	return ia
}

func prefixOption(prefix netip.Prefix, preferred, valid time.Duration) dhcpv6.Option {
	return &dhcpv6.OptIAPrefix{PreferredLifetime: preferred, ValidLifetime: valid,
		Prefix: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 128)}}
}

// lease is a prefix that is preferred for 200 s and valid for 400 s.
func lease(prefix netip.Prefix) dhcpv6.Option {
	return prefixOption(prefix, 200*time.Second, 400*time.Second)
}

func statusOption(code iana.StatusCode) dhcpv6.Option { return &dhcpv6.OptStatusCode{StatusCode: code} }

// answers returns the bytes of an answer to the last message.
func (s *scene) answers(kind dhcpv6.MessageType, r reply) []byte {
	m := &dhcpv6.Message{MessageType: kind, TransactionID: s.exchange.transaction}
	server := r.server
	if server == nil {
		server = firstServer
	}
	m.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionClientID, OptionData: ownDUID})
	m.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionServerID, OptionData: server})
	if r.status != iana.StatusSuccess {
		m.AddOption(statusOption(r.status))
	}
	if r.ia != nil {
		m.AddOption(s.association(0, r.ia...))
	}
	for _, o := range r.options {
		m.AddOption(o)
	}
	if r.change != nil {
		r.change(m)
	}
	return m.ToBytes()
}

// gets has the machine receive an answer to its last message, and reports whether it has taken it.
func (s *scene) gets(kind dhcpv6.MessageType, r reply) bool {
	return s.receive(s.now, s.answers(kind, r))
}

// newBound is a scene in which prefixA is delegated.
func newBound(t *testing.T) *scene {
	t.Helper()
	s := newScene(1)
	s.next(t)
	s.gets(dhcpv6.MessageTypeAdvertise,
		reply{ia: []dhcpv6.Option{lease(prefixA)}, options: []dhcpv6.Option{preference(255)}})
	if m := s.next(t); m.MessageType != dhcpv6.MessageTypeRequest {
		t.Fatalf("a %v was sent", m.MessageType)
	}
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}})
	s.wantLeases(t, prefixA)
	return s
}

func preference(n byte) dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionPreference, OptionData: []byte{n}}
}

// wantLeases compares the prefixes that are not deprecated.
func (s *scene) wantLeases(t *testing.T, want ...netip.Prefix) {
	t.Helper()
	var found []netip.Prefix
	for _, p := range sorted(s.leases) {
		if !p.Deprecated(s.now) {
			found = append(found, p.Prefix)
		}
	}
	if len(found) != len(want) {
		t.Fatalf("delegated are %v, want %v; the state is %+v", found, want, s.state(s.now))
	}
	for i := range want {
		if found[i] != want[i] {
			t.Fatalf("delegated are %v, want %v", found, want)
		}
	}
}
