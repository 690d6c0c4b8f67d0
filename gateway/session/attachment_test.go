package session_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestAttachment: the data path knows a client behind a router by the router's MAC address, also when the router
// changes in the middle of a session and when the table is opened again; events have where the client is attached.
func TestAttachment(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	k, end := key(1, 5), time.Now().Add(time.Hour)
	at := session.Attachment{
		Circuit: "\x00\x07", Remote: strings.Repeat("r", session.MaxAttachment), Via: datapath.MAC{2, 9}}
	known := func(mac datapath.MAC, want session.Attachment) {
		t.Helper()
		c, _ := dp.client(k.Addr)
		if s := get(t, table, k); c.MAC != mac || s.MAC != k.MAC || s.Attachment != want {
			t.Errorf("the data path has %x, and the table %+v", c.MAC, s)
		}
	}
	must(t, table.LeaseAt(k, "phone", end, at))
	known(at.Via, at)
	begun := admit(t, table, k, session.Limits{})
	at.Via[5]++
	must(t, table.LeaseAt(k, "phone", end, at))
	known(at.Via, at)
	must(t, table.Lease(k, "phone", end.Add(time.Minute))) // by who does not know where
	known(at.Via, at)
	must(t, table.Close())
	table = openTable(t, path, dp)
	known(at.Via, at)
	if s := get(t, table, k); s.ID != begun.ID {
		t.Errorf("another session: %+v", s)
	}
	_, err := table.End(k.Addr, session.UserRequest)
	must(t, err)
	known(at.Via, at)
	for _, e := range drain(t, table) {
		if e.Attachment.Circuit != at.Circuit {
			t.Errorf("%s: %+v", e.Kind, e.Attachment)
		}
	}
	must(t, table.LeaseAt(k, "phone", end, session.Attachment{}))
	known(k.MAC, session.Attachment{})
}

func TestVLANsAsTextAndNumber(t *testing.T) {
	for want, v := range map[string]session.VLANs{"": {}, "7": {Outer: 7}, "100:20": {Outer: 100, Inner: 20}} {
		number := map[string]uint32{"7": 7, "100:20": 409620}[want]
		if v.String() != want || v.Number() != number {
			t.Errorf("%q is %q, %d", want, v, v.Number())
		}
	}
}
