package delegation

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// TestOffers: of the offers that come within the first pause the best is requested, later the first one, and one with
// the preference 255 at once. Long: a few lines a case.
func TestOffers(t *testing.T) {
	type offered struct {
		server     []byte
		preference byte
		prefixes   []netip.Prefix
	}
	for name, tt := range map[string]struct {
		late   bool
		offers []offered
		want   []byte
		atOnce bool
	}{
		"one": {offers: []offered{{firstServer, 0, []netip.Prefix{prefixA}}}, want: firstServer},
		"preference": {offers: []offered{{firstServer, 1, []netip.Prefix{prefixA}}, {otherServer, 2,
			[]netip.Prefix{prefixB}}}, want: otherServer},
		"the first of equals": {offers: []offered{{firstServer, 1, []netip.Prefix{prefixA}}, {otherServer, 1,
			[]netip.Prefix{prefixB}}}, want: firstServer},
		"more prefixes": {offers: []offered{{firstServer, 1, []netip.Prefix{prefixA}}, {otherServer, 1,
			[]netip.Prefix{prefixA, prefixB}}}, want: otherServer},
		"at once": {offers: []offered{{firstServer, 255, []netip.Prefix{prefixA}}}, want: firstServer, atOnce: true},
		"late": {late: true, offers: []offered{{firstServer, 0, []netip.Prefix{prefixA}}}, want: firstServer,
			atOnce: true},
		"without a prefix": {offers: []offered{{otherServer, 255, nil}, {firstServer, 0, []netip.Prefix{prefixA}}},
			want: firstServer},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(1)
			solicit := s.next(t)
			if tt.late {
				solicit = s.next(t)
			}
			for _, o := range tt.offers {
				ia := []dhcpv6.Option{}
				for _, p := range o.prefixes {
					ia = append(ia, lease(p))
				}
				s.gets(dhcpv6.MessageTypeAdvertise,
					reply{server: o.server, ia: ia, options: []dhcpv6.Option{preference(o.preference)}})
			}
			m := s.next(t)
			server := m.GetOneOption(dhcpv6.OptionServerID)
			if m.MessageType != dhcpv6.MessageTypeRequest || !bytes.Equal(server.ToBytes(), tt.want) {
				t.Fatalf("a %v to %x is sent", m.MessageType, server)
			}
			if atOnce := m.at.Equal(solicit.at); atOnce != tt.atOnce {
				t.Errorf("the request was sent at once: %t", atOnce)
			}
		})
	}
}

// TestRapidCommit: a REPLY to a SOLICIT counts if it says that it is one.
func TestRapidCommit(t *testing.T) {
	s := newScene(1)
	if m := s.next(t); m.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
		t.Error("the server may not answer with a REPLY")
	}
	if s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}}) {
		t.Error("a REPLY without the option was taken")
	}
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)},
		options: []dhcpv6.Option{&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}}})
	s.wantLeases(t, prefixA)
}

// TestForeignAnswers: what is not an answer to the client's message changes nothing.
func TestForeignAnswers(t *testing.T) {
	set := func(code dhcpv6.OptionCode, data []byte) func(*dhcpv6.Message) {
		return func(m *dhcpv6.Message) {
			m.Options.Del(code)
			if data != nil {
				m.AddOption(&dhcpv6.OptionGeneric{OptionCode: code, OptionData: data})
			}
		}
	}
	for name, change := range map[string]func(*dhcpv6.Message){
		"another transaction": func(m *dhcpv6.Message) { m.TransactionID[2]++ },
		"another client":      set(dhcpv6.OptionClientID, otherServer),
		"no client":           set(dhcpv6.OptionClientID, nil),
		"another server":      set(dhcpv6.OptionServerID, otherServer),
		"no server":           set(dhcpv6.OptionServerID, nil),
		"a short DUID":        set(dhcpv6.OptionServerID, []byte{0, 3}),
		"a long DUID":         set(dhcpv6.OptionServerID, make([]byte, maxDUID+1)),
		"an advertisement":    func(m *dhcpv6.Message) { m.MessageType = dhcpv6.MessageTypeAdvertise },
		"a request":           func(m *dhcpv6.Message) { m.MessageType = dhcpv6.MessageTypeRequest },
		"a reconfiguration":   func(m *dhcpv6.Message) { m.MessageType = dhcpv6.MessageTypeReconfigure },
	} {
		t.Run(name, func(t *testing.T) {
			s := newBound(t)
			s.pass(t, 100*time.Second)
			if m := s.sent[len(s.sent)-1]; m.MessageType != dhcpv6.MessageTypeRenew {
				t.Fatalf("a %v was sent", m.MessageType)
			}
			if strings.HasPrefix(name, "no ") { // also where any server may answer
				s.pass(t, 60*time.Second)
			}
			if s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixB)}, change: change}) {
				t.Error("it was taken")
			}
			s.wantLeases(t, prefixA)
			if s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}}); s.phase != bound {
				t.Errorf("after the right answer the phase is %v", s.phase)
			}
			if s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixB)}}) {
				t.Error("a second answer was taken")
			}
		})
	}
}

// TestServerVanishes: RENEW at T1, REBIND at T2, SOLICIT when the prefix has expired.
func TestServerVanishes(t *testing.T) {
	s := newBound(t)
	start := s.now
	first := map[dhcpv6.MessageType]time.Duration{}
	for _, m := range s.pass(t, 500*time.Second) {
		if _, known := first[m.MessageType]; !known {
			first[m.MessageType] = m.at.Sub(start)
		}
	}
	solicit := first[dhcpv6.MessageTypeSolicit]
	if first[dhcpv6.MessageTypeRenew] != 100*time.Second || first[dhcpv6.MessageTypeRebind] != 160*time.Second ||
		solicit < 400*time.Second || solicit > 401*time.Second {
		t.Errorf("first sent after %v", first)
	}
	s.wantLeases(t)
	for _, m := range s.sent {
		asks := len(m.Options.OneIAPD().Options.Prefixes()) == 1 &&
			m.Options.OneIAPD().Options.Prefixes()[0].Prefix.String() == prefixA.String()
		server := m.GetOneOption(dhcpv6.OptionServerID) != nil
		switch m.MessageType {
		case dhcpv6.MessageTypeRenew:
			if !asks || !server {
				t.Errorf("%v", m)
			}
		case dhcpv6.MessageTypeRebind:
			if !asks || server {
				t.Errorf("%v", m)
			}
		}
	}
}
