// Tests of what an Access-Accept or Access-Reject may hold. signed and answer build an answer to a request, with and
// without a valid signature, and attribute one of its attributes (hostile_test.go). newClient makes a Client of the
// servers in its Config; loopbackPort is an address at which nobody listens (freeradius_test.go).

package radius

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// vendor is a Vendor-Specific attribute (RFC 2865, 5.26).
func vendor(id uint32, rest ...byte) []byte {
	return attribute(rfc2865.VendorSpecific_Type, append(binary.BigEndian.AppendUint32(nil, id), rest...))
}

func TestVendorNumber(t *testing.T) {
	for _, tt := range []struct {
		name       string
		attributes [][]byte
		want       uint32
	}{
		{"alone", [][]byte{vendor(14559, 1, 6, 0, 0, 1, 2)}, 0x102},
		{"second in one attribute", [][]byte{vendor(14559, 2, 6, 9, 9, 9, 9, 1, 6, 0, 0, 1, 2)}, 0x102},
		{"second attribute", [][]byte{vendor(14122, 1, 6, 9, 9, 9, 9), vendor(14559, 1, 6, 0, 0, 1, 2)}, 0x102},
		{"another vendor's", [][]byte{vendor(9, 1, 6, 0, 0, 1, 2)}, 0},
		{"short", [][]byte{vendor(14559, 1, 5, 0, 1, 2)}, 0},
		{"longer than it is", [][]byte{vendor(14559, 1, 7, 0, 0, 1, 2)}, 0},
		{"of length 0", [][]byte{vendor(14559, 1, 0, 0, 0, 1, 2)}, 0},
		{"no vendor", [][]byte{attribute(rfc2865.VendorSpecific_Type, []byte{0, 0, 0})}, 0},
		{"empty", [][]byte{attribute(rfc2865.VendorSpecific_Type, nil)}, 0},
	} {
		p, err := radius.Parse(answer(make([]byte, headerSize), radius.CodeAccessAccept, tt.attributes...), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := vendorNumber(p, vendorChilliSpot, chilliMaxInput); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestTooMuchClassIsAnError(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: "x"}}})
	full := attribute(rfc2865.Class_Type, make([]byte, maxValue))
	for n, ok := range map[int]bool{maxClass / len(full): true, maxClass/len(full) + 1: false} {
		var all [][]byte
		for range n {
			all = append(all, full)
		}
		p, err := radius.Parse(answer(make([]byte, headerSize), radius.CodeAccessAccept, all...), nil)
		if err != nil {
			t.Fatal(err)
		}
		login, err := c.decide(session.Credentials{User: "alice", Port: 1}, p)
		if (err == nil) != ok || errors.Is(err, session.ErrRejected) || ok && len(login.Class) != n {
			t.Errorf("%d of Class: %v", n, err)
		}
	}
}

func TestReplyMessageIsPlain(t *testing.T) {
	p, err := radius.Parse(answer(make([]byte, headerSize), radius.CodeAccessReject,
		attribute(rfc2865.ReplyMessage_Type, []byte("\x1b[31mred\r\nbell\a \xff end")),
		attribute(rfc2865.ReplyMessage_Type, []byte("Grüße <b>\u0085\n"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := replyMessage(p), "[31mred \nbell  \uFFFD end\nGrüße <b>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzOpen: only answers signed for this request are opened.
func FuzzOpen(f *testing.F) {
	request := make([]byte, headerSize)
	copy(request[4:], "an authenticator")
	f.Add(signed(request, radius.CodeAccessAccept), true)
	f.Add(signed(request, radius.CodeAccessReject, attribute(rfc2865.ReplyMessage_Type, []byte("no"))), true)
	f.Add(append(signed(request, radius.CodeAccessAccept), "padding"...), true)
	f.Add(seal(request, answer(request, radius.CodeAccessAccept)), true)
	f.Add(seal(request, answer(request, radius.CodeAccountingResponse)), false)
	f.Add(signed(request, radius.CodeAccountingResponse), false)
	f.Add([]byte{2, 0, 0, 20}, true)
	f.Fuzz(func(t *testing.T, data []byte, mustSign bool) {
		p, err := open(data, []byte(testSecret), [16]byte(request[4:]), mustSign)
		if err != nil {
			if p != nil || !errors.Is(err, errMalformed) && !errors.Is(err, errUnsigned) && !errors.Is(err, errForged) {
				t.Errorf("%v with error %v", p, err)
			}
			return
		}
		size := binary.BigEndian.Uint16(data[2:])
		if !radius.IsAuthenticResponse(data[:size], request, []byte(testSecret)) {
			t.Errorf("opened %x, which is no answer to the request", data)
		}
	})
}

// FuzzDecide: any answer of a server is handled.
func FuzzDecide(f *testing.F) {
	c, err := New(Config{NASIdentifier: "x", Servers: []Server{{Address: loopbackPort(), Secret: "x"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(radius.CodeAccessAccept), attribute(rfc2865.SessionTimeout_Type, []byte{0, 0, 14, 16}))
	f.Add(byte(radius.CodeAccessAccept), vendor(14559, 1, 6, 0, 0, 1, 2, 21, 6, 255, 255, 255, 255))
	f.Add(byte(radius.CodeAccessAccept), vendor(14122, 7, 0))
	f.Add(byte(radius.CodeAccessAccept), attribute(rfc2865.FramedRoute_Type, []byte("192.0.2.0/28 0.0.0.0 1")))
	f.Add(byte(radius.CodeAccessReject), attribute(rfc2865.ReplyMessage_Type, []byte("no\x00\x1b")))
	f.Fuzz(func(t *testing.T, code byte, attributes []byte) {
		attrs, err := radius.ParseAttributes(attributes[:min(len(attributes), radius.MaxPacketLength-headerSize)])
		if err != nil || !expected(radius.Code(code), true) {
			return
		}
		login, err := c.decide(
			session.Credentials{User: "alice", Port: 1}, &radius.Packet{Code: radius.Code(code), Attributes: attrs})
		var r *session.Rejection
		if errors.As(err, &r) && (!utf8.ValidString(r.Message) ||
			strings.ContainsFunc(r.Message, func(c rune) bool { return unicode.IsControl(c) && c != '\n' })) {
			t.Errorf("message %q", r.Message)
		}
		if err != nil {
			if login.User != "" || login.Class != nil {
				t.Errorf("%+v with error %v", login, err)
			}
			return
		}
		if code != byte(radius.CodeAccessAccept) || login.User == "" {
			t.Errorf("code %d admits %q", code, login.User)
		}
		if l := login.Limits; l.SessionTimeout < 0 || l.IdleTimeout < 0 || l.Interim != 0 && l.Interim < time.Minute {
			t.Errorf("limits %+v", l)
		}
	})
}

// TestEndsAndZeros: a limit of 0 is given, and one that is missing is not; the earlier of Session-Timeout and
// WISPr-Session-Terminate-Time counts, at a login and in a CoA-Request alike. An end that is over or unreadable
// admits nobody. Long: most lines are the table of cases.
func TestEndsAndZeros(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: testSecret}}})
	now := time.Date(2026, 11, 27, 22, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		timeout string // Session-Timeout in seconds; empty: none
		end     string // WISPr-Session-Terminate-Time; empty: none
		want    time.Duration
		given   bool
		bad     string
	}{
		{"", "", 0, false, ""}, {"0", "", 0, true, ""}, {"60", "", time.Minute, true, ""},
		{"", "2026-11-27T23:00:00+00:00", time.Hour, true, ""}, {"", "2026-11-28T00:30:00+01:30", time.Hour, true, ""},
		{"", "2026-11-27T23:00:00Z", time.Hour, true, ""},
		{"60", "2026-11-27T23:00:00Z", time.Minute, true, ""}, {"7200", "2026-11-27T23:00:00Z", time.Hour, true, ""},
		{"0", "2026-11-27T23:00:00Z", time.Hour, true, ""},
		{"", "2026-11-27T21:00:00Z", 0, false, "is over"}, {"60", "tomorrow", 0, false, "is no time"},
		{"", "2026-13-27T23:00:00Z", 0, false, "is no time"},
	} {
		p := builder{radius.New(radius.CodeAccessAccept, []byte(testSecret))}
		var l session.Limits
		var given session.ExplicitLimits
		if tt.timeout != "" {
			seconds, _ := strconv.Atoi(tt.timeout)
			p.number(rfc2865.SessionTimeout_Type, uint32(seconds))
		}
		if tt.end != "" {
			p.vendor(vendorWISPr, wisprTerminate, []byte(tt.end))
		}
		limits, err := c.cfg.limits(p.Packet)
		if err == nil {
			l, given, err = limits.ofLogin(now)
		}
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if err != nil || l.SessionTimeout != tt.want || given.SessionTimeout != tt.given {
			t.Errorf("%+v: %s, given: %v, %v", tt, l.SessionTimeout, given.SessionTimeout, err)
		}
		for _, a := range p.Attributes {
			if !changes(a) {
				t.Errorf("%+v: a CoA-Request is refused", tt)
			}
		}
		changed := session.Limits{SessionTimeout: 5 * time.Second}
		limits.change(now)(&changed)
		if tt.given && changed.SessionTimeout != tt.want || !tt.given && changed.SessionTimeout != 5*time.Second {
			t.Errorf("%+v: a CoA-Request makes it %s", tt, changed.SessionTimeout)
		}
	}
}
