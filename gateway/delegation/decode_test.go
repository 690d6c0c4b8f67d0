package delegation

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// advertisement is one of Debian's dhcpd, which offers 2001:db8:a:ff00::/56.
const advertisement = "02123456" + "0001000a00030001020000000001" + "0002000a00030001020000000002" +
	"00190029" + "472beb60" + "00000000" + "00000000" + "001a0019" + "00000bb8" + "00000fa0" + "38" +
	"20010db8000aff000000000000000000"

// TestDecode: messages as they are on the wire. Long: a few lines a case.
func TestDecode(t *testing.T) {
	const head = "02123456"
	for name, tt := range map[string]struct {
		text string
		want func(answer) bool // nil: it is an error
	}{
		"advertisement": {advertisement, func(a answer) bool {
			return a.kind == dhcpv6.MessageTypeAdvertise && bytes.Equal(a.client, ownDUID) &&
				bytes.Equal(a.server, firstServer) && len(a.associations) == 1 && slices.Equal(a.associations[0].prefixes, []offer{{
				netip.MustParsePrefix("2001:db8:a:ff00::/56"), 3000 * time.Second, 4000 * time.Second}})
		}},
		"empty":                       {"", nil},
		"short":                       {"021234", nil},
		"no options":                  {head, func(a answer) bool { return a.server == nil }},
		"solicit":                     {"01123456", nil},
		"half an option":              {head + "000100", nil},
		"an option that is too short": {head + "0001000a0003", nil},
		"two clients":                 {head + "00010001aa" + "00010001aa", nil},
		"an empty DUID":               {head + "00020000", nil},
		"a DUID of 1 byte":            {head + "0002000101", nil},
		"a DUID without content":      {head + "000100020003", nil},
		"a long preference":           {head + "000700020102", nil},
		"a DUID of the UUID type with 2 bytes": {head + "0002000400040102",
			func(a answer) bool { return bytes.Equal(a.server, []byte{0, 4, 1, 2}) }},
		"a mistake in another option": {head + "0018000105" + "00070001ff",
			func(a answer) bool { return a.preference == 255 }},
		"a short IA_PD": {head + "0019000400000001", nil},
		"T1 after T2": {head + "0019000c" + "00000001" + "00000064" + "00000032",
			func(a answer) bool { return len(a.associations) == 0 && a.refused != nil }},
		"two IA_PDs with one IAID": {head + "0019000c000000010000003200000064" + "0019000c000000010000003300000064",
			func(a answer) bool { return len(a.associations) == 1 && a.associations[0].t1 == 50*time.Second }},
		"a long status": {head + "000d00ca0006" + strings.Repeat("41", 200), func(a answer) bool {
			return a.status.code == iana.StatusNoPrefixAvail && len(a.status.text) == maxStatusText
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			a, err := decode(b)
			switch {
			case tt.want == nil && err == nil:
				t.Errorf("it was decoded: %+v", a)
			case tt.want != nil && err != nil:
				t.Error(err)
			case tt.want != nil && !tt.want(a):
				t.Errorf("decoded: %+v", a)
			}
		})
	}
}

// TestDecodePrefix: prefixes that cannot be used are refused, with the reason.
func TestDecodePrefix(t *testing.T) {
	for prefix, reason := range map[string]string{
		"2001:db8::/56": "", "2001:db8::/64": "", "fd00:1::/48": "", "2000::/16": "",
		"2001:db8::/65": "needs a /64", "2001:db8::1/128": "needs a /64",
		"fe80::/64": "link-local", "ff02::/64": "multicast", "fec0::/48": "site-local", "::/64": "reserved",
		"::ffff:0:0/64": "reserved", "2000::/15": "shorter", "f000::/4": "link-local", // contains it
	} {
		p := netip.MustParsePrefix(prefix)
		_, err := decodePrefix(prefixOption(p, time.Hour, time.Hour).(*dhcpv6.OptIAPrefix))
		if reason == "" && err != nil || reason != "" && (err == nil || !strings.Contains(err.Error(), reason)) {
			t.Errorf("%v: %v, want %q", p, err, reason)
		}
	}
	for name, o := range map[string]*dhcpv6.OptIAPrefix{
		"no length":        {PreferredLifetime: time.Hour, ValidLifetime: time.Hour},
		"length 129":       {ValidLifetime: time.Hour, Prefix: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(129, 128)}},
		"preferred longer": prefixOption(prefixA, 2*time.Hour, time.Hour).(*dhcpv6.OptIAPrefix),
		"with an error": {ValidLifetime: time.Hour,
			Prefix:  &net.IPNet{IP: net.ParseIP("2001:db8::"), Mask: net.CIDRMask(56, 128)},
			Options: dhcpv6.PrefixOptions{Options: dhcpv6.Options{statusOption(iana.StatusUnspecFail)}}},
	} {
		p, err := decodePrefix(o)
		if err == nil || strings.Contains(name, "length") && !strings.Contains(err.Error(), "no valid length") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	host := prefixOption(prefixA, time.Hour, time.Hour).(*dhcpv6.OptIAPrefix)
	host.Prefix.IP[15] = 1
	if p, err := decodePrefix(host); err != nil || p.prefix != prefixA {
		t.Errorf("with bits behind the length: %v, %v", p, err)
	}
}

// TestWarnings: a unique local prefix is used, and the state says what that means.
func TestWarnings(t *testing.T) {
	s := newScene(1)
	s.next(t)
	s.gets(dhcpv6.MessageTypeReply, reply{ia: []dhcpv6.Option{lease(netip.MustParsePrefix("fd00:1::/48"))},
		options: []dhcpv6.Option{&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}}})
	if state := s.state(s.now); len(state.Prefixes) != 1 || len(state.Warnings) != 1 ||
		!strings.Contains(state.Warnings[0], "unique local") {
		t.Errorf("the state is %+v", state)
	}
}

// FuzzDecode: no message makes the client fail, keep prefixes that cannot be used or more than it may, or send
// without a pause.
func FuzzDecode(f *testing.F) {
	b, err := hex.DecodeString(advertisement)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	s := newScene(2)
	s.tick(s.now.Add(time.Second))
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeAdvertise, dhcpv6.MessageTypeReply} {
		f.Add(s.answers(kind, reply{ia: []dhcpv6.Option{lease(prefixA), prefixOption(prefixB, 0, 0)},
			options: []dhcpv6.Option{s.association(1, statusOption(iana.StatusNoBinding)), preference(255),
				&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit},
				&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionSolMaxRT, OptionData: []byte{0, 0, 1, 0}}}}))
	}
	f.Add(s.answers(dhcpv6.MessageTypeReply, reply{status: iana.StatusNoBinding}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decode(b); err == nil && a.server != nil && !isDUID(a.server) {
			t.Errorf("a DUID of %d bytes", len(a.server))
		} else if _, err := dhcpv6.DUIDFromBytes(a.server); a.server != nil && err != nil {
			t.Skip("the scene reads by the library, which refuses this DUID; clients do not interpret any")
		}
		for _, known := range [][]Prefix{nil, {{Prefix: prefixA}}} {
			fuzzed := newScene(2, known...)
			fuzzed.random = rand.New(rand.NewPCG(1, 2))
			for range 4 {
				fuzzed.pass(t, time.Minute)
				if len(b) >= headLength {
					copy(b[1:], fuzzed.exchange.transaction[:])
				}
				fuzzed.receive(fuzzed.now, b)
				for _, p := range fuzzed.leases {
					if err := checkUsable(p.Prefix); err != nil || !p.ValidUntil.After(fuzzed.now) {
						t.Errorf("%+v is delegated: %v", p, err)
					}
				}
			}
			if n := len(fuzzed.leases); n > 2*maxPrefixes {
				t.Errorf("%d prefixes are kept", n)
			}
			if n := len(fuzzed.sent); n > 400 {
				t.Errorf("%d messages in four minutes", n)
			}
		}
	})
}
