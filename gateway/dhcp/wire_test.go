// Tests of the encoding of frames and options. macOf(i) is the MAC of device i, addr parses an IP address, message
// makes a DHCP message, and testConfig is the configuration of a server (main_test.go, table_test.go).

package dhcp

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

func TestFrameRoundTrip(t *testing.T) {
	for _, payload := range []string{"", "x", "even", "three"} {
		want := datagram{
			srcMAC: macOf(1), dstMAC: macOf(2), payload: []byte(payload),
			src: netip.MustParseAddrPort("10.1.0.1:67"), dst: netip.MustParseAddrPort("10.1.2.3:68"),
		}
		frame := want.frame()
		got, err := parseFrame(append(frame, 0, 0, 0)) // Ethernet's padding
		if err != nil {
			t.Fatal(err)
		}
		opts := cmp.Options{
			cmp.AllowUnexported(datagram{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})}
		if diff := cmp.Diff(want, got, opts); diff != "" {
			t.Error(diff)
		}
		if sum := checksum(0, frame[14:34]); sum != 0xffff {
			t.Errorf("the IP header sums to %#x", sum)
		}
		if sum := checksum(17+uint32(len(frame)-34), frame[26:]); sum != 0xffff {
			t.Errorf("the UDP datagram sums to %#x", sum)
		}
	}
}

func TestParseFrameRefuses(t *testing.T) {
	good := datagram{payload: []byte("0123456789"), src: netip.MustParseAddrPort("10.1.0.9:68"),
		dst: netip.MustParseAddrPort("10.1.0.1:67")}.frame()
	for name, edit := range map[string]func([]byte) []byte{
		"empty":                   func(b []byte) []byte { return nil },
		"cut in the IP header":    func(b []byte) []byte { return b[:30] },
		"cut in the payload":      func(b []byte) []byte { return b[:len(b)-1] },
		"another EtherType":       func(b []byte) []byte { b[12] = 0x86; return b },
		"IPv6 in an IPv4 frame":   func(b []byte) []byte { b[14] = 0x65; return b },
		"header length too small": func(b []byte) []byte { b[14] = 0x44; return b },
		"header length too large": func(b []byte) []byte { b[14] = 0x4f; return b },
		"TCP":                     func(b []byte) []byte { b[23] = 6; return b },
		"more fragments":          func(b []byte) []byte { b[20] = 0x20; return b },
		"later fragment":          func(b []byte) []byte { b[21] = 1; return b },
		"IP length too small":     func(b []byte) []byte { b[17] = 27; return b },
		"UDP length too small":    func(b []byte) []byte { b[39] = 7; return b },
		"UDP length too large":    func(b []byte) []byte { b[39] = 19; return b },
	} {
		if d, err := parseFrame(edit(bytes.Clone(good))); !errors.Is(err, errNoDatagram) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// TestOptionsInTheOrderAskedFor checks RFC 2132, 9.8, and which options are left out. Long: a
// table.
func TestOptionsInTheOrderAskedFor(t *testing.T) {
	cfg := testConfig("-")
	cfg.IPv6Only = 300 * time.Second
	cfg.Options = []Option{
		{42, []byte{10, 1, 0, 1}}, {43, bytes.Repeat([]byte{7}, 255)}, {67, bytes.Repeat([]byte{8}, 200)}}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	id := client{mac: macOf(1), id: "me"}
	offer := reply{kind: dhcpv4.MessageTypeOffer, addr: addr("10.1.1.1"), lease: time.Hour}
	for _, tt := range []struct {
		name string
		rq   request
		r    reply
		want []byte
	}{
		{"its order", request{client: id, optionCodes: []byte{42, 6, 51, 3, 250, 1}, replyBytes: 1472}, offer,
			[]byte{53, 54, 42, 6, 51, 1, 3, 114, 58, 59, 61}},
		{"nothing asked: everything", request{client: id, replyBytes: 1472, agent: []byte{1, 1, 1}}, offer,
			[]byte{53, 54, 1, 3, 6, 15, 26, 28, 42, 43, 51, 58, 59, 67, 114, 61, 82}},
		{"no room: what is needed", request{client: id, optionCodes: []byte{43, 67, 6, 3}, replyBytes: 548}, offer,
			[]byte{53, 54, 67, 6, 1, 3, 51, 114, 58, 59, 61}},
		{"the mask asked for after the router", request{client: id, optionCodes: []byte{3, 6, 1}, replyBytes: 1472}, offer,
			[]byte{53, 54, 1, 3, 6, 51, 114, 58, 59, 61}},
		{"inform", request{client: id, optionCodes: []byte{51, 6}, replyBytes: 548}, reply{kind: dhcpv4.MessageTypeAck},
			[]byte{53, 54, 6, 1, 114, 61}},
		{"without IPv4", request{client: id, optionCodes: []byte{108, 6}, replyBytes: 1472},
			reply{kind: dhcpv4.MessageTypeOffer, lease: time.Hour}, []byte{53, 54, 108, 6, 51, 1, 114, 58, 59, 61}},
		{"refusal", request{client: id, optionCodes: []byte{1, 3}, replyBytes: 548},
			reply{kind: dhcpv4.MessageTypeNak, reason: "no"},
			[]byte{53, 54, 56, 61}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.rq.ciaddr = netip.IPv4Unspecified()
			var got []byte
			tt.rq.id = tt.rq.client.id
			for _, o := range tt.r.options(&tt.rq, fixedOptions(cfg)) {
				got = append(got, o.Code)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			m := tt.r.message(&tt.rq, fixedOptions(cfg))
			if len(m) > tt.rq.replyBytes || len(m) < minReply {
				t.Errorf("%d bytes in a room of %d", len(m), tt.rq.replyBytes)
			}
			if p, err := dhcpv4.FromBytes(m); err != nil || len(p.Options) != len(got) {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

func TestHostnameIsMadePlain(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "phone-1_a.lan": "phone-1_a.lan", "Jörg's\x1b[31m": "J--rg-s--31m", "nul\x00after": "nul",
		strings.Repeat("x", 300): strings.Repeat("x", 63),
	} {
		if got := cleanHostname([]byte(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	f.Add(datagram{payload: []byte("x"), src: netip.MustParseAddrPort("10.1.0.9:68"),
		dst: netip.MustParseAddrPort("10.1.0.1:67")}.frame())
	f.Fuzz(func(t *testing.T, frame []byte) {
		d, err := parseFrame(frame)
		if err != nil {
			return
		}
		opts := cmp.Options{
			cmp.AllowUnexported(datagram{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})}
		again, err := parseFrame(d.frame())
		if diff := cmp.Diff(d, again, opts); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

// FuzzAnswer gives a server any two datagrams of one client. Long: one property, and what it needs.
func FuzzAnswer(f *testing.F) {
	kinds := []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform}
	for _, kind := range kinds {
		for _, ciaddr := range [][]byte{{0, 0, 0, 0}, {10, 1, 1, 7}} {
			first := message(
				f, dhcpv4.MessageTypeRequest, macOf(1), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 1, 1, 7})))
			second := message(f, kind, macOf(1), dhcpv4.WithClientIP(ciaddr), dhcpv4.WithRequestedOptions(dhcpv4.OptionRouter),
				dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 1, 1, 7})))
			f.Add(first.ToBytes(), second.ToBytes())
		}
	}
	f.Add(message(f, dhcpv4.MessageTypeRequest, macOf(1), append(by(farRelay, "\x01\x01c"),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 1, 2, 7})))...).ToBytes(),
		message(f, dhcpv4.MessageTypeRelease, macOf(1), dhcpv4.WithClientIP([]byte{10, 1, 2, 7})).ToBytes())
	cfg := testConfig("-")
	cfg.Information = true
	withRelays(&cfg)
	cfg, err := cfg.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := &Server{cfg: cfg, log: cfg.Log, wake: make(chan struct{}, 1),
			logBudgets: budget.Senders[refusal]{Rate: budget.Minutely, Size: 1},
			naks:       budget.Senders[MAC]{Rate: budget.Minutely, Size: 1}}
		s.segments, s.relays = segments(cfg)
		s.mac = func() MAC { return macOf(9) }
		for _, payload := range [][]byte{first, second} {
			d := datagram{payload: payload, src: netip.MustParseAddrPort("0.0.0.0:68"),
				dst: netip.AddrPortFrom(limitedBroadcast, serverPort)}
			if len(payload) > 34 {
				d.srcMAC = MAC(payload[28:34]) // chaddr: all others are refused, but of relays
				if payload[atGiaddr] != 0 {
					d.srcMAC = macOf(100)
				}
			}
			rq, err := parseRequest(d)
			if err != nil || s.locate(rq) != nil {
				return
			}
			out := s.answer(rq, time.Now())
			for _, c := range s.takeChanges() {
				if r, err := decodeRecord(c.addr.AsSlice(), c.encode()); err != nil || r.client != c.client || r.state != c.state ||
					r.at != c.at {
					t.Errorf("record %+v reads back as %+v: %v", c.record, r, err)
				}
				if c.event == granted {
					out = c.ack
					s.confirm(c, true)
				}
			}
			if out != nil {
				checkReply(t, s, rq, out)
			}
		}
	})
}

// checkReply checks properties of every reply: it goes to its client or to all, with an address from the pools.
func checkReply(t *testing.T, s *Server, rq *request, frame []byte) {
	t.Helper()
	r, err := parseFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dhcpv4.FromBytes(r.payload)
	if err != nil {
		t.Fatal(err)
	}
	if r.dstMAC != rq.sender && r.dstMAC != broadcastMAC {
		t.Errorf("a reply to %x went to %x", rq.sender, r.dstMAC)
	}
	if a, _ := netip.AddrFromSlice(m.YourIPAddr.To4()); !a.IsUnspecified() && !rq.segment.table.dynamic(a) {
		t.Errorf("%s was given out", a)
	}
	if MAC(m.ClientHWAddr) != rq.client.mac || m.OpCode != dhcpv4.OpcodeBootReply {
		t.Errorf("%s", m.Summary())
	}
}
