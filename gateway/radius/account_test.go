// Tests of accounting. newClient makes a Client of the servers in its Config, and startFreeRADIUS a real server on
// loopback; its records (record) are the packets that it has written down (freeradius_test.go). testKey is the test's
// client, MAC and IPv4 address.

package radius

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"layeh.com/radius/rfc2866"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// began is in the past, so that its delay is not 0.
var began = time.Now().Add(-2 * time.Hour).Truncate(time.Second)

// testFurther are addresses of the test's client beside its first one: the link-local one is not for servers.
var testFurther = []netip.Addr{
	netip.MustParseAddr("fe80::5"), netip.MustParseAddr("2001:db8:1::5"), netip.MustParseAddr("fd00:1::5")}

// testPrefixes are the IPv6 prefixes that each session has.
func testPrefixes(session.Session) Prefixes {
	return Prefixes{Own: prefixesOf("2001:db8:1::/64", "fd00:1::/64"),
		Delegated: prefixesOf("2001:db8:7000::/56", "2001:db8:8000::/48"), Routed: prefixesOf("2001:db8:9000::/48")}
}

// testEvent is an event of a session with more than 4 GiB each way.
func testEvent(kind session.Kind, after time.Duration, cause session.Cause) session.Event {
	return session.Event{
		Kind: kind, Cause: cause, At: began.Add(after),
		Session: session.Session{
			Key: testKey, FurtherAddrs: testFurther, State: session.Authenticated, ID: "00deadbeef001234", Began: began,
			Login:  session.Login{User: "alice", Class: [][]byte{{0x00, 0xff}, []byte("second"), {0x01}}},
			Counts: session.Counts{UpBytes: 5<<32 + 7, UpPackets: 1000, DownBytes: 1<<40 + 1<<31, DownPackets: 1<<32 + 2},
		},
	}
}

// TestAccounting: the attributes of Accounting-Requests, as FreeRADIUS has received them. Long: most lines are the
// table of cases.
func TestAccounting(t *testing.T) {
	f := startFreeRADIUS(t)
	cfg := Config{Servers: []Server{f.server()}, NASAddress: netip.MustParseAddr("192.0.2.1"), NASPortType: Ethernet,
		CalledStationID: "Guests", Prefixes: testPrefixes}
	c := newClient(t, cfg)
	common := record{
		"Acct-Session-Id": {"00deadbeef001234"}, "User-Name": {"alice"}, "Acct-Authentic": {"RADIUS"},
		"NAS-Identifier": {"gateway-1"}, "NAS-IP-Address": {"192.0.2.1"}, "NAS-Port-Type": {"Ethernet"},
		"Calling-Station-Id": {"02-00-00-AB-CD-EF"}, "Called-Station-Id": {"Guests"}, "Framed-IP-Address": {"10.1.0.5"},
		"Framed-IPv6-Address":   {"2001:db8:1::5", "fd00:1::5"},
		"Framed-IPv6-Prefix":    {"2001:db8:1::/64", "fd00:1::/64"},
		"Delegated-IPv6-Prefix": {"2001:db8:7000::/56", "2001:db8:8000::/48"},
		"Framed-IPv6-Route":     {"2001:db8:9000::/48 :: 1"},
		"Class":                 {"0x00ff", "0x7365636f6e64", "0x01"},
	}
	counts := record{
		"Acct-Input-Octets": {"7"}, "Acct-Input-Gigawords": {"5"}, "Acct-Input-Packets": {"1000"},
		"Acct-Output-Octets": {"2147483648"}, "Acct-Output-Gigawords": {"256"}, "Acct-Output-Packets": {"2"},
	}
	for _, tt := range []struct {
		name  string
		event session.Event
		want  []record
	}{
		{"start", testEvent(session.Started, 0, ""), []record{common, {"Acct-Status-Type": {"Start"}}}},
		{"interim", testEvent(session.Updated, 90*time.Second, ""),
			[]record{common, counts, {"Acct-Status-Type": {"Interim-Update"}, "Acct-Session-Time": {"90"}}}},
		{"stop", testEvent(session.Ended, time.Hour, session.IdleTimeout),
			[]record{common, counts,
				{"Acct-Status-Type": {"Stop"}, "Acct-Session-Time": {"3600"}, "Acct-Terminate-Cause": {"Idle-Timeout"}}}},
	} {
		if err := c.Account(t.Context(), tt.event); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := f.last(t, "told")
		checkTimes(t, got, tt.event.At)
		want := record{}
		for _, part := range tt.want {
			for k, v := range part {
				want[k] = v
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}

	cfg.SwapOctets, cfg.LocalUsers = true, "ali" // as users of vouchers
	if err := newClient(t, cfg).Account(
		t.Context(), testEvent(session.Ended, time.Hour, session.UserRequest)); err != nil {
		t.Fatal(err)
	}
	swapped := f.last(t, "told")
	guest := testEvent(session.Ended, time.Hour, session.UserRequest)
	guest.User, guest.Guest = "room:204", &session.Guest{Terms: "5d9b98b5", Email: "ada@example.org"}
	if err := newClient(t, cfg).Account(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	if told := f.last(t, "told"); strings.Join(told["Connect-Info"], " ") != "terms 5d9b98b5" ||
		strings.Join(told["Acct-Authentic"], " ") != "Local" || strings.Contains(fmt.Sprint(told), "ada@") {
		t.Errorf("of a guest: %v", told)
	}
	for name, want := range map[string]string{
		"Acct-Output-Octets": "7", "Acct-Output-Gigawords": "5", "Acct-Output-Packets": "1000",
		"Acct-Input-Octets": "2147483648", "Acct-Input-Gigawords": "256", "Acct-Input-Packets": "2",
		"Acct-Authentic": "Local",
	} {
		if got := strings.Join(swapped[name], " "); got != want {
			t.Errorf("swapped: %s = %s, want %s", name, got, want)
		}
	}
}

// checkTimes compares the attributes that give an event's time with the event, and removes them: Acct-Delay-Time before
// the packet arrived (RFC 2866, 5.2).
func checkTimes(t *testing.T, r record, instant time.Time) {
	t.Helper()
	came, err := strconv.ParseInt(strings.Join(r["Timestamp"], " "), 10, 64)
	if err != nil {
		t.Error(err)
	}
	delay, err := strconv.ParseInt(strings.Join(r["Acct-Delay-Time"], " "), 10, 64)
	if err != nil {
		t.Error(err)
	}
	// Three clocks are read one after the other, each in whole seconds.
	if off := came - delay - instant.Unix(); off < -1 || off > 30 {
		t.Errorf("came at %d with delay %d: off by %d s", came, delay, off)
	}
	if stamp, want := strings.Join(r["Event-Timestamp"], " "),
		instant.Local().Format("Jan _2 2006 15:04:05 MST"); stamp != want {
		t.Errorf("Event-Timestamp = %s, want %s", stamp, want)
	}
	for _, name := range []string{"Timestamp", "Acct-Delay-Time", "Event-Timestamp"} {
		delete(r, name)
	}
}

func TestTerminateCauses(t *testing.T) {
	f := startFreeRADIUS(t)
	c := newClient(t, Config{Servers: []Server{f.server()}})
	for cause, want := range map[session.Cause]string{
		session.UserRequest: "User-Request", session.LostCarrier: "Lost-Carrier", session.LeaseEnded: "Lost-Carrier",
		session.LeaseReleased: "Lost-Carrier", session.IdleTimeout: "Idle-Timeout",
		session.SessionTimeout: "Session-Timeout", session.Quota: "Session-Timeout", session.AdminReset: "Admin-Reset",
		session.NASReboot: "NAS-Reboot", session.NASRequest: "NAS-Request", "meteorite": "NAS-Error",
	} {
		if err := c.Account(t.Context(), testEvent(session.Ended, time.Hour, cause)); err != nil {
			t.Error(err)
			continue
		}
		if got := strings.Join(f.last(t, "told")["Acct-Terminate-Cause"], " "); got != want {
			t.Errorf("%s: Acct-Terminate-Cause = %s, want %s", cause, got, want)
		}
	}
	if err := c.Account(t.Context(), testEvent("renamed", 0, "")); err == nil {
		t.Error("an unknown kind of event was told")
	}
}

func TestAccountingOnAndOff(t *testing.T) {
	f := startFreeRADIUS(t)
	c := newClient(t, Config{Servers: []Server{f.server()}})
	for want, tell := range map[string]func() error{
		"Accounting-On":  func() error { return c.AccountingOn(t.Context()) },
		"Accounting-Off": func() error { return c.AccountingOff(t.Context()) },
	} {
		if err := tell(); err != nil {
			t.Error(err)
		}
		r := f.last(t, "told")
		if got := strings.Join(r["Acct-Status-Type"], " "); got != want || len(r["Acct-Session-Id"]) != 1 ||
			len(r["User-Name"]) != 0 {
			t.Errorf("told %v, want %s", r, want)
		}
	}
}

// TestStopGoesToSecondServer: a stop is sent to the second server while the first is silent, and nothing is sent twice.
func TestStopGoesToSecondServer(t *testing.T) {
	first, second := startFreeRADIUS(t), startFreeRADIUS(t)
	c := newClient(t, Config{Servers: []Server{first.server(), second.server()}, Timeout: 3 * time.Second, Retries: -1})
	first.freeze(t)
	for i := range 20 {
		e := testEvent(session.Ended, time.Hour, session.UserRequest)
		e.ID = fmt.Sprintf("%016x", i)
		if err := c.Account(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	first.thaw(t)
	ids := map[string]bool{}
	for _, r := range second.records(t, "told") {
		ids[strings.Join(r["Acct-Session-Id"], " ")] = true
	}
	if n := len(second.records(t, "told")); n != 20 || len(ids) != 20 {
		t.Errorf("the second server was told %d times of %d sessions, want 20 of 20", n, len(ids))
	}
}

func TestLongestAccountingFits(t *testing.T) {
	long := strings.Repeat("x", maxValue)
	c := newClient(t, Config{
		Servers:       []Server{{Address: netip.MustParseAddrPort("192.0.2.1:1812"), Secret: "x"}},
		NASIdentifier: long, NASAddress: netip.MustParseAddr("192.0.2.1"), NASPortID: long, CalledStationID: long,
	})
	e := testEvent(session.Ended, time.Hour, session.Quota)
	e.User, e.Class = long, nil
	e.FurtherAddrs = slices.Repeat([]netip.Addr{netip.MustParseAddr("2001:db8::1")}, maxAddresses6)
	for left := maxClass; left > 2; {
		class := make([]byte, min(left-2, maxValue))
		e.Class = append(e.Class, class)
		left -= 2 + len(class)
	}
	r, err := c.event(e)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := r.packet([]byte("x"), 0, time.Now()); err != nil {
		t.Errorf("%d bytes: %v", len(data), err)
	}
}

func TestStale(t *testing.T) {
	instant := time.Unix(1_000_000, 0)
	r := &accountingRequest{at: instant}
	for _, tt := range []struct {
		encoded, now time.Duration
		want         bool
	}{
		{0, 999 * time.Millisecond, false},
		{999 * time.Millisecond, time.Second, true},
		{5 * time.Second, 5900 * time.Millisecond, false},
		{-time.Hour, -time.Minute, false}, // the clock was set: no delay is negative
	} {
		if got := r.stale(instant.Add(tt.encoded), instant.Add(tt.now)); got != tt.want {
			t.Errorf("encoded after %s, sent after %s: stale %v", tt.encoded, tt.now, got)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		-time.Hour: 0, 0: 0, 1999 * time.Millisecond: 1, 1 << 62: 1<<32 - 1,
	} {
		if got := seconds(d); got != want {
			t.Errorf("%s is %d, want %d", d, got, want)
		}
	}
	if len(terminateCauses) != 10 || len(statusTypes) != 3 ||
		statusTypes[session.Ended] != rfc2866.AcctStatusType_Value_Stop {
		t.Error("a table of account.go is not what session has")
	}
}
