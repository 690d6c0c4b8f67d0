// Tests that a client's connections are ended when it loses its addresses. newMemory is a data path in memory, key(mac,
// host) the key of MAC 02:00:00:00:00:mac at 10.1.0.host, and lease gives a client a lease (memory_test.go).

package session_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// recordedCuts is a Cutter that records each call, and whether the data path admitted the client 10.0.0.5 at that
// moment.
type recordedCuts struct {
	dp  *memory
	key session.Key
	got []string
}

func (c *recordedCuts) record(manner string, prefixes ...netip.Prefix) {
	if len(prefixes) > 0 {
		c.got = append(c.got, fmt.Sprint(manner, " ", prefixes, " ", c.dp.admits(c.key)))
	}
}
func (c *recordedCuts) Schedule(prefixes ...netip.Prefix) { c.record("soon", prefixes...) }
func (c *recordedCuts) Flush(prefixes ...netip.Prefix) <-chan struct{} {
	c.record("ending", prefixes...)
	return nil
}

// TestConnectionsEnd: when a session ends, the table ends its connections while the data path is closed, before another
// session begins. Connections without a session end when the address gets another client. The same user's next session
// keeps them. Long: the steps of one run, each of which needs the state that the one before left.
func TestConnectionsEnd(t *testing.T) {
	const behind, other = "198.18.0.0/24", "198.18.1.0/24"
	first, next := key(1, 5), key(2, 5)
	line := func(user string, pppoe uint16, behind ...string) session.Login {
		l := session.Login{User: user, For: first, PPPoE: session.PPPoESession{Session: pppoe}}
		for _, p := range behind {
			l.PPPoE.Routes = append(l.PPPoE.Routes, netip.MustParsePrefix(p))
		}
		return l
	}
	login := func(t *testing.T, table *session.Table, user string) {
		if _, err := table.Admit(first.Addr, session.Login{User: user}); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(t *testing.T, table *session.Table, l session.Login) {
		if _, err := table.Connect(l); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		action func(*testing.T, *session.Table)
		want   []string
	}{
		"logout": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			table.End(first.Addr, session.UserRequest)
			login(t, table, "ada")
		}, []string{"ending [10.1.0.5/32] false", "soon [10.1.0.5/32] false", "ending [10.1.0.5/32] false"}},
		"the same user again": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			login(t, table, "ada")
		}, []string{"ending [10.1.0.5/32] false", "ending [10.1.0.5/32] true"}},
		"another user": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			login(t, table, "bob")
		}, []string{"ending [10.1.0.5/32] false", "soon [10.1.0.5/32] false", "ending [10.1.0.5/32] false",
			"ending [10.1.0.5/32] false"}},
		"another client": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			lease(t, table, next)
		}, []string{"ending [10.1.0.5/32] false", "soon [10.1.0.5/32] false"}},
		"another client after none that was logged in": {func(t *testing.T, table *session.Table) {
			lease(t, table, next)
			lease(t, table, first)
			login(t, table, "ada")
		}, []string{"soon [10.1.0.5/32] false", "ending [10.1.0.5/32] false"}},
		"released": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			table.Forget(first)
			lease(t, table, next)
			table.Forget(next)
		}, []string{"ending [10.1.0.5/32] false", "soon [10.1.0.5/32] false", "soon [10.1.0.5/32] false"}},
		"renewed": {func(t *testing.T, table *session.Table) {
			lease(t, table, first)
			login(t, table, "ada")
			if err := table.Lease(first, "phone", time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}, []string{"ending [10.1.0.5/32] false"}},
		"hung up": {func(t *testing.T, table *session.Table) {
			connect(t, table, line("ada", 7, behind))
			table.Disconnect(first, 7, session.UserRequest)
		}, []string{"ending [10.1.0.5/32 198.18.0.0/24] false", "soon [10.1.0.5/32 198.18.0.0/24] false"}},
		"the same subscriber again, with another network": {func(t *testing.T, table *session.Table) {
			connect(t, table, line("ada", 7, behind))
			connect(t, table, line("ada", 8, other))
		}, []string{"ending [10.1.0.5/32 198.18.0.0/24] false", "ending [10.1.0.5/32 198.18.1.0/24] true",
			"soon [198.18.0.0/24] false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dp := newMemory()
			c := &recordedCuts{dp: dp, key: first}
			table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
			table.Cut(c)
			tt.action(t, table)
			if !slices.Equal(c.got, tt.want) {
				t.Errorf("%q, want %q", c.got, tt.want)
			}
		})
	}
}
