// Tests of the records in the store's file: they are read as they were written, older formats too. key(mac, host) is
// the key of MAC 02:00:00:00:00:mac at 10.1.0.host (memory_test.go).

package session_test

import (
	"encoding/hex"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gateweigh/gateweigh/gateway/session"
)

var (
	leased = session.Session{
		Key: key(1, 5), State: session.Leased, Hostname: "phone", LeasedAt: time.Unix(1700000000, 5),
	}
	authenticated = session.Session{
		Key: key(2, 6), State: session.Authenticated, LeasedAt: time.Unix(-1, 999999999), LeaseEnd: time.Unix(1<<40, 0),
		Login: session.Login{User: "ada", Class: [][]byte{{1, 2, 3}, {}}, Limits: session.Limits{
			SessionTimeout: time.Hour, IdleTimeout: math.MaxInt64, UpBytes: 1, DownBytes: 2, TotalBytes: math.MaxUint64,
			UpBps: 3, DownBps: 4, Interim: time.Minute,
		}},
		ID: "0123456789abcdef", Began: time.Unix(1700000001, 0), Seen: time.Unix(1700000002, 0),
		Counts: session.Counts{UpBytes: 1 << 40, UpPackets: 2, DownBytes: math.MaxUint64, DownPackets: 4, DroppedPackets: 5},
	}
	online = func(routes ...netip.Prefix) session.Session {
		s := authenticated
		s.PPPoE = session.PPPoESession{Session: 7, MTU: 1492, State: []byte("{}"), Routes: routes}
		return s
	}
	owned = func() session.Session { // with what records of former versions do not have
		s := online(netip.MustParsePrefix("203.0.113.0/28"))
		s.Limits.Connections = 4_000_000_000
		s.Owner, s.FurtherAddrs = "west", []netip.Addr{netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("10.1.0.7")}
		s.Attachment = session.Attachment{Circuit: "\x00\x04", Via: [6]byte{2, 1},
			VLANs: session.VLANs{Outer: 4094, Inner: 20}}
		prefix := func(n byte) []netip.Prefix {
			return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, n}), 48),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 2, n}), 64)}
		}
		s.IPv6 = &session.Grant6{Prefixes: prefix(1), Delegated: prefix(2), Routes: prefix(3), Told: prefix(4),
			Addrs: []netip.Addr{netip.MustParseAddr("2001:db8::6")}, DNS: []netip.Addr{netip.MustParseAddr("2001:db8::7")},
			InterfaceID: 0x0123456789abcdef,
			DelegatedOf: prefix(7)[0], AddressOf: prefix(8)[0]}
		s.Delegated = []netip.Prefix{netip.MustParsePrefix("2001:db8:200:1::/64"), netip.MustParsePrefix("2001:db8:100::/56")}
		return s
	}()
	reading = session.Reading{Epoch: 7, Counts: session.Counts{UpBytes: 6, UpPackets: 5, DownBytes: 4, DownPackets: 3,
		DroppedPackets: 2}}
)

var sameEvent = cmp.Options{cmpopts.IgnoreUnexported(session.Event{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(
	session.Key{}, netip.Addr{}, netip.Prefix{})}

func TestClientsSurviveTheFile(t *testing.T) {
	for _, want := range []session.Session{leased, authenticated, owned, online(),
		online(netip.MustParsePrefix("203.0.113.0/28"),
			netip.MustParsePrefix("10.9.0.0/16"))} {
		got, read, err := session.DecodeClient(session.EncodeClient(&want, reading))
		if err != nil {
			t.Errorf("%s: %v", want.State, err)
		}
		if diff := cmp.Diff(want, got, sameEvent); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.State, diff)
		}
		if read != reading {
			t.Errorf("%s: reading %+v, want %+v", want.State, read, reading)
		}
	}
}

func TestEventsSurviveTheFile(t *testing.T) {
	causes := []session.Cause{
		"", session.UserRequest, session.LostCarrier, session.IdleTimeout, session.SessionTimeout,
		session.Quota, session.AdminReset, session.NASReboot, session.NASRequest, session.NASError, session.LeaseEnded,
		session.LeaseReleased,
	}
	for _, kind := range []session.Kind{session.Started, session.Updated, session.Ended} {
		for _, cause := range causes {
			want := session.Event{Kind: kind, Cause: cause, At: time.Unix(1700000003, 1), Session: authenticated}
			got, err := session.DecodeEvent(session.EncodeEvent(&want))
			if err != nil {
				t.Errorf("%s %s: %v", kind, cause, err)
			}
			if diff := cmp.Diff(want, got, sameEvent); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", kind, cause, diff)
			}
		}
	}
}

// TestOldFormatsReadable checks that old files stay readable. A change of the bytes must raise FormatVersion and read
// the old format.
func TestOldFormatsReadable(t *testing.T) {
	for _, tt := range []struct {
		s    session.Session
		want string
	}{
		{leased, "020000000001" + "040a010005" + "01" + "0570686f6e65" + "0180c49fd50c05" + "00" + "070605040302"},
		{authenticated, "020000000002" + "040a010006" + "03" + "00" + "0101ff93ebdc03" + "0180808080804000" +
			"03616461" + "0203010203" + "00" + "80c0e285e368" + "ffffffffffffffff7f" + "80b09dc2df01" +
			"0102ffffffffffffffffff01" + "0304" +
			"1030313233343536373839616263646566" + "0182c49fd50c00" + "0184c49fd50c00" +
			"808080808020" + "02" + "ffffffffffffffffff01" + "0405" + "070605040302"},
	} {
		if got := hex.EncodeToString(session.EncodeClient(&tt.s, reading)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.s.State, got, tt.want)
		}
	}
}

func TestDamagedRecordsAreErrors(t *testing.T) {
	client := session.EncodeClient(&authenticated, reading)
	event := session.EncodeEvent(&session.Event{Kind: session.Ended, Session: authenticated, At: time.Unix(1, 0)})
	for n := range len(client) {
		if _, _, err := session.DecodeClient(client[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a client", n, len(client))
		}
	}
	for n := range len(event) {
		if _, err := session.DecodeEvent(event[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are an event", n, len(event))
		}
	}
	if _, _, err := session.DecodeClient(append(slices.Clone(client), 0)); err == nil {
		t.Error("a client with a byte too many is one")
	}
	for name, change := range map[string]func(b []byte){
		"address of 5 bytes": func(b []byte) { b[6] = 5 },
		"unknown state":      func(b []byte) { b[11] = 4 },
		"no state":           func(b []byte) { b[11] = 0 },
	} {
		damaged := slices.Clone(client)
		change(damaged)
		if _, _, err := session.DecodeClient(damaged); err == nil {
			t.Errorf("%s: a client", name)
		}
	}
}

// FuzzDecodeClient: whatever decodes as a client is encoded and decoded again unchanged.
func FuzzDecodeClient(f *testing.F) {
	f.Add(session.EncodeClient(&leased, reading))
	f.Add(session.EncodeClient(&authenticated, reading))
	routed := online(netip.MustParsePrefix("203.0.113.0/28"))
	f.Add(session.EncodeClient(&routed, reading))
	f.Add(session.EncodeClient(&owned, reading))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, read, err := session.DecodeClient(b)
		if err != nil {
			return
		}
		again, readAgain, err := session.DecodeClient(session.EncodeClient(&s, read))
		if diff := cmp.Diff(s, again, sameEvent); err != nil || diff != "" || read != readAgain {
			t.Errorf("%v, reading %+v and %+v\n%s", err, read, readAgain, diff)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(session.EncodeEvent(&session.Event{Kind: session.Started, Session: leased}))
	f.Add(session.EncodeEvent(
		&session.Event{Kind: session.Ended, Cause: session.Quota, Session: authenticated, At: time.Unix(1, 0)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := session.DecodeEvent(b)
		if err != nil {
			return
		}
		again, err := session.DecodeEvent(session.EncodeEvent(&e))
		if diff := cmp.Diff(e, again, sameEvent); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
