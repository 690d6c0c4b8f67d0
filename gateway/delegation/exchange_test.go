package delegation

import (
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// TestSolicitForADay: without a server the pauses double, up to an hour, and vary by a tenth. The elapsed time stops at
// its largest value.
func TestSolicitForADay(t *testing.T) {
	s := newScene(1)
	sent := s.pass(t, 24*time.Hour)
	if first := sent[0].at.Sub(s.now.Add(-24 * time.Hour)); first < 0 || first > time.Second {
		t.Errorf("the first message is sent after %v", first)
	}
	least, most := time.Second, 1100*time.Millisecond
	for i := 1; i < len(sent); i++ {
		pause := sent[i].at.Sub(sent[i-1].at)
		if pause < least || pause > most {
			t.Errorf("pause %d is %v, want %v to %v", i, pause, least, most)
		}
		least, most = pause*19/10, pause*21/10
		if most > 3240*time.Second {
			least, most = min(least, 3240*time.Second), 3960*time.Second
		}
		if sent[i].TransactionID != sent[0].TransactionID {
			t.Error("a repeated message has another transaction id")
		}
	}
	last := sent[len(sent)-1]
	if elapsed := last.Options.ElapsedTime(); elapsed != 0xffff*10*time.Millisecond {
		t.Errorf("after a day the elapsed time is %v", elapsed)
	}
	if n := len(sent); n < 30 || n > 45 {
		t.Errorf("%d messages in a day", n)
	}
	if hint := last.Options.OneIAPD().Options.Prefixes(); len(hint) != 1 || hint[0].Prefix.String() != "::/56" {
		t.Errorf("the hint is %v", hint)
	}
	if said := s.state(s.now).LastError; !strings.Contains(said, "no DHCPv6 server has answered") {
		t.Errorf("the state says %q", said)
	}
}

// TestSolMaxRT: a server that has no prefixes can say how often it is asked, from a minute to a day.
func TestSolMaxRT(t *testing.T) {
	for seconds, want := range map[uint32]time.Duration{
		60: 66 * time.Second, 59: 66 * time.Minute, 86400: 1584 * time.Minute, 86401: 66 * time.Minute} {
		s := newScene(1)
		s.next(t)
		option := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionSolMaxRT,
			OptionData: []byte{byte(seconds >> 24), byte(seconds >> 16), byte(seconds >> 8), byte(seconds)}}
		s.gets(dhcpv6.MessageTypeAdvertise, reply{status: iana.StatusNoPrefixAvail, options: []dhcpv6.Option{option}})
		if said := s.state(s.now).LastError; said != "the provider's server said NoPrefixAvail" {
			t.Errorf("the state says %q", said)
		}
		sent := s.pass(t, 6*24*time.Hour)
		longest := time.Duration(0)
		for i := 1; i < len(sent); i++ {
			longest = max(longest, sent[i].at.Sub(sent[i-1].at))
		}
		if longest > want || longest < want*8/11 {
			t.Errorf("with %d s the longest pause is %v, want nearly %v", seconds, longest, want)
		}
	}
}

// TestOffersAndRefuses: a server that offers a prefix and does not delegate it is not asked without pauses.
func TestOffersAndRefuses(t *testing.T) {
	s := newScene(1)
	var refused time.Time
	least := time.Duration(0) // until the next SOLICIT
	for start := s.now; s.now.Sub(start) < 24*time.Hour; {
		switch m := s.next(t); m.MessageType {
		case dhcpv6.MessageTypeSolicit:
			if pause := m.at.Sub(refused); least > 0 && pause < least {
				t.Errorf("a SOLICIT is sent %v after a refusal, want %v", pause, least)
			}
			s.gets(dhcpv6.MessageTypeAdvertise, reply{ia: []dhcpv6.Option{lease(prefixA)}})
		default:
			s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{statusOption(iana.StatusNoPrefixAvail)}})
			refused, least = s.now, min(max(2*least, 2*time.Second), time.Hour)
		}
	}
	if n := len(s.sent); n > 120 {
		t.Errorf("%d messages in a day", n)
	}
}

// TestRequestUnanswered: a REQUEST is sent ten times, also where the server says UnspecFail, and then all are asked.
func TestRequestUnanswered(t *testing.T) {
	for _, fails := range []bool{false, true} {
		s := newScene(1)
		s.next(t)
		s.gets(dhcpv6.MessageTypeAdvertise,
			reply{ia: []dhcpv6.Option{lease(prefixA)}, options: []dhcpv6.Option{preference(255)}})
		count := 0
		for s.next(t).MessageType == dhcpv6.MessageTypeRequest {
			count++
			if fails {
				s.gets(dhcpv6.MessageTypeReply, reply{status: iana.StatusUnspecFail})
			}
		}
		if count != 10 || s.phase != soliciting {
			t.Errorf("%d requests, and then %v", count, s.phase)
		}
	}
}

// TestStartWithPrefixes: known prefixes are asked for with a REBIND, soon at first. Such as have ended are not.
func TestStartWithPrefixes(t *testing.T) {
	s := newScene(1, Prefix{Prefix: prefixA})
	sent := s.pass(t, 60*time.Second)
	for i, m := range sent {
		if m.MessageType != dhcpv6.MessageTypeRebind {
			t.Errorf("a %v is sent", m.MessageType)
		}
		if i > 0 && i < 4 && m.at.Sub(sent[i-1].at) > 4400*time.Millisecond {
			t.Errorf("pause %d is %v", i, m.at.Sub(sent[i-1].at))
		}
	}
	if n := len(sent); n < 6 || n > 8 {
		t.Errorf("%d messages in a minute", n)
	}
	s.wantLeases(t, prefixA)
	s.linkUp(s.now)
	if m := s.next(t); m.MessageType != dhcpv6.MessageTypeRebind || m.TransactionID == sent[0].TransactionID {
		t.Errorf("when the link comes up %v is sent", m)
	}
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(prefixA)}})
	if s.phase != bound {
		t.Errorf("the phase is %v", s.phase)
	}
	s.start(s.now.Add(time.Hour), s.leases, firstServer)
	if s.now = s.now.Add(time.Hour); s.next(t).MessageType != dhcpv6.MessageTypeSolicit {
		t.Error("a prefix that has ended is asked for")
	}
}

// TestReleaseUnanswered: a RELEASE is sent four times; the prefix is not used from the first one on.
func TestReleaseUnanswered(t *testing.T) {
	s := newBound(t)
	before := len(s.sent)
	s.release(s.now)
	s.wantLeases(t)
	s.pass(t, time.Hour)
	for _, m := range s.sent[before:] {
		if m.MessageType != dhcpv6.MessageTypeRelease || len(m.Options.OneIAPD().Options.Prefixes()) != 1 {
			t.Errorf("%v is sent", m)
		}
	}
	if n := len(s.sent) - before; n != 4 || s.phase != idle {
		t.Errorf("%d messages are sent, and the phase is %v", n, s.phase)
	}
	s.linkUp(s.now)
	if sent := s.pass(t, time.Hour); len(sent) != 0 || !s.due().IsZero() {
		t.Errorf("after the release %v are sent", sent)
	}
}
