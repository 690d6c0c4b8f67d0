package elsewhere

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// record returns a session's record from a file of testdata, which a real table has written, as the store has it.
func record(t testing.TB, name string) cluster.Record {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Record{Version: 1, Owner: "gw1", Content: content}
}

var (
	ann = datapath.MAC{2, 0, 0, 0, 0, 1}
	bob = datapath.MAC{2, 0, 0, 0, 0, 2}
)

// ids returns what an index finds by MAC address, user and ID.
func ids(x *Index) string {
	a, _ := x.OfMAC(ann)
	b, _ := x.OfMAC(bob)
	users, _ := x.OfUser("ANN")
	_, byID := x.ByID("id-ann")
	return fmt.Sprint(len(a), len(b), len(users), byID, x.Len())
}

// TestIndex: a session is found by its MAC address, its user and its ID, at each gateway that has one, until it ends or
// its record is gone. Leases and what cannot be read are no sessions. Late news of an ended session change nothing.
func TestIndex(t *testing.T) {
	x := New()
	step := func(label, want string) {
		t.Helper()
		if got := ids(x); got != want {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
	}
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	step("a session", "1 0 1 true 1")
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	step("the same once more", "1 0 1 true 1")
	x.Put("gw1", "10.1.0.2", record(t, "bob"))
	x.Put("gw3", "10.1.0.1", record(t, "ann"))
	step("another gateway's", "2 1 2 true 3")
	x.Put("gw1", "10.1.0.3", record(t, "leased"))
	x.Put("gw1", "10.1.0.3", cluster.Record{Version: 1, Content: []byte("strange")})
	step("a lease, and what is no session", "2 1 2 true 3")
	x.Put("gw1", "10.1.0.2", record(t, "leased"))
	step("one logged out", "2 0 2 true 2")
	x.Gone("gw3", "10.1.0.1")
	x.Gone("gw3", "10.1.0.1")
	step("one gone", "1 0 1 false 1")
	x.End("id-ann")
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	step("one ended", "0 0 0 false 0")
}

// TestIndexOfSite: a session in the set of a site is of the gateway that serves there, also after a takeover.
func TestIndexOfSite(t *testing.T) {
	x := New()
	r := record(t, "ann")
	for _, serves := range []string{"gw1", "gw2"} {
		r.Owner = serves
		x.Put("campus", "10.1.0.1", r)
		if s, found := x.ByID("id-ann"); !found || s.Gateway != serves || s.Set != "campus" || x.Len() != 1 {
			t.Errorf("%s serves: %+v", serves, s)
		}
	}
	x.Gone("campus", "10.1.0.1")
	if x.Len() != 0 {
		t.Errorf("%d are left", x.Len())
	}
}

// TestLatest: of several sessions the one that began last counts, at the address where that is asked for.
func TestLatest(t *testing.T) {
	x := New()
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	list, up := x.OfMAC(ann)
	if up {
		t.Error("an index that nobody has filled is up to date")
	}
	if _, found := Latest(list, netip.MustParseAddr("10.1.0.9")); found {
		t.Error("a session at another address is found")
	}
	later := list[0]
	later.Began, later.ID = later.Began.Add(1), "later"
	if s, found := Latest(append([]Session{later}, list...), netip.Addr{}); !found || s.ID != "later" {
		t.Errorf("%+v", s)
	}
}

// BenchmarkMemory says how many bytes a session takes in an index.
func BenchmarkMemory(b *testing.B) {
	content := record(b, "ann")
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x := New()
		const sessions = 100_000
		for i := range sessions {
			x.Put("gw1", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), numbered(content, i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/sessions, "B/session")
		runtime.KeepAlive(x)
	}
}

// numbered returns a record with another MAC address.
func numbered(r cluster.Record, i int) cluster.Record {
	content := append([]byte(nil), r.Content...)
	content[4], content[5], content[6] = byte(i>>16), byte(i>>8), byte(i)
	return cluster.Record{Version: 1, Owner: r.Owner, Content: content}
}
