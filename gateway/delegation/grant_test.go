package delegation

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// TestAnotherPrefix: when the server gives another prefix, the former is deprecated until it ends, or ends at once if
// the server says so. Deprecated ones are not kept without a limit.
func TestAnotherPrefix(t *testing.T) {
	s := newBound(t)
	end := s.leases[0].ValidUntil
	s.pass(t, 100*time.Second)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixB)}})
	s.wantLeases(t, prefixB)
	if list := s.state(s.now).Prefixes; len(list) != 2 || list[1].Prefix != prefixA || !list[1].ValidUntil.Equal(end) ||
		!list[1].PreferredUntil.Equal(s.now) {
		t.Errorf("%v are delegated", list)
	}
	s.pass(t, 100*time.Second)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA), prefixOption(prefixB, 0, 0)}})
	s.wantLeases(t, prefixA)
	if len(s.leases) != 1 {
		t.Errorf("%v are delegated", s.leases)
	}
	for i := range 3 * maxPrefixes {
		s.next(t)
		last := netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/56", 0x100+i))
		s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{prefixOption(last, time.Hour, 1000*time.Hour)}})
		s.wantLeases(t, last)
	}
	if len(s.leases) != maxPrefixes {
		t.Errorf("%d prefixes are kept", len(s.leases))
	}
}

// TestWithdrawnPrefix: with lifetimes of 0 the prefix ends, and another is asked for.
func TestWithdrawnPrefix(t *testing.T) {
	s := newBound(t)
	s.pass(t, 100*time.Second)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{prefixOption(prefixA, 0, 0)}})
	s.wantLeases(t)
	if m := s.next(t); m.MessageType != dhcpv6.MessageTypeSolicit || len(s.leases) != 0 {
		t.Errorf("a %v is sent with %v", m.MessageType, s.leases)
	}
}

// TestNoBinding: a server that has lost its state is asked for the prefix again. If it gives another, the former ends.
func TestNoBinding(t *testing.T) {
	for name, r := range map[string]reply{
		"of the association": {ia: []dhcpv6.Option{statusOption(iana.StatusNoBinding)}},
		"of the message":     {status: iana.StatusNoBinding},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBound(t)
			s.pass(t, 160*time.Second)
			r.server = otherServer
			s.gets(dhcpv6.MessageTypeReply, r)
			m := s.next(t)
			if m.MessageType != dhcpv6.MessageTypeRequest || m.at != s.now ||
				!bytes.Equal(m.GetOneOption(dhcpv6.OptionServerID).ToBytes(), otherServer) {
				t.Fatalf("a %v is sent", m)
			}
			s.wantLeases(t, prefixA)
			s.gets(dhcpv6.MessageTypeReply, reply{server: otherServer, ia: []dhcpv6.Option{lease(prefixB)}})
			s.wantLeases(t, prefixB)
			if len(s.leases) != 1 {
				t.Errorf("%v are delegated", s.leases)
			}
		})
	}
}

// TestTwoAssociations: of two wanted prefixes one may be given later, and the earlier T1 counts.
func TestTwoAssociations(t *testing.T) {
	s := newScene(2)
	s.next(t)
	other := s.association(1, statusOption(iana.StatusNoPrefixAvail))
	s.gets(dhcpv6.MessageTypeAdvertise,
		reply{ia: []dhcpv6.Option{lease(prefixA)}, options: []dhcpv6.Option{other, preference(255)}})
	s.next(t)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}, options: []dhcpv6.Option{other}})
	s.wantLeases(t, prefixA)
	if m := s.next(t); len(m.Options.IAPD()) != 2 || m.MessageType != dhcpv6.MessageTypeRenew {
		t.Fatalf("%v is sent", m)
	}
	start := s.now
	other = s.association(1, lease(prefixB))
	other.T1 = 50 * time.Second
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}, options: []dhcpv6.Option{other}})
	s.wantLeases(t, prefixA, prefixB)
	if m := s.next(t); m.at.Sub(start) != 50*time.Second {
		t.Errorf("a %v is sent after %v", m.MessageType, m.at.Sub(start))
	}
	start = s.now
	s.gets(dhcpv6.MessageTypeReply, reply{change: func(m *dhcpv6.Message) {
		ia := s.association(0, lease(prefixA))
		ia.T1, ia.T2 = 380*time.Second, 390*time.Second
		m.AddOption(ia)
	}})
	if m := s.next(t); m.at.Sub(start) != 175*time.Second {
		t.Errorf("the other prefix, which ends in 350 s, is renewed after %v", m.at.Sub(start))
	}
}

// TestRenewal: T1 and T2 lie before the end of the prefix whatever the server says, and are a second at least.
func TestRenewal(t *testing.T) {
	const forever = 0xffffffff * time.Second
	for name, tt := range map[string]struct {
		t1, t2, preferred, valid time.Duration
		want1, want2             time.Duration
	}{
		"as said":            {100, 160, 200, 400, 100, 160},
		"left to the client": {0, 0, 200, 400, 100, 160},
		"T1 left":            {0, 60, 200, 400, 60, 60},
		"T2 left":            {150, 0, 200, 400, 150, 160},
		"T2 left, late T1":   {300, 0, 200, 400, 300, 300},
		"after the end":      {500, 600, 200, 400, 100, 160},
		"T2 after the end":   {100, 600, 200, 400, 100, 160},
		"deprecated":         {0, 0, 0, 400, 200, 320},
		"at once":            {0, 0, 1, 1, 1, 1},
		"never, but it ends": {forever / time.Second, forever / time.Second, 200, 400, 100, 160},
		"without end":        {1000, 2000, forever / time.Second, forever / time.Second, 1000, 2000},
	} {
		ia := &association{t1: tt.t1 * time.Second, t2: tt.t2 * time.Second, prefixes: []offer{
			{prefixA, tt.preferred * time.Second, tt.valid * time.Second}, {prefix: prefixB}}}
		if t1, t2 := renewal(ia); t1 != tt.want1*time.Second || t2 != tt.want2*time.Second {
			t.Errorf("%s: T1 %v, T2 %v", name, t1, t2)
		}
	}
}

// TestUnnamedPrefix: a prefix that the server does not name, without giving another one, stays as it is (RFC 8415
// 18.2.10.1).
func TestUnnamedPrefix(t *testing.T) {
	s := newBound(t)
	s.next(t)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA), lease(prefixB)}})
	s.wantLeases(t, prefixA, prefixB)
	ends := s.leases[1].ValidUntil
	s.next(t)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}})
	s.wantLeases(t, prefixA, prefixB)
	if !s.leases[1].ValidUntil.Equal(ends) || !s.leases[0].ValidUntil.After(ends) {
		t.Errorf("delegated are %v, and one was until %v", s.leases, ends)
	}
}
