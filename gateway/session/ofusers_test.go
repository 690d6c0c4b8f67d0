// Tests of users that have sessions at other gateways too. key and openTable are in memory_test.go.

package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestOthersCount: sessions at other gateways count at a login, except for names of many people, and a device replaces
// its own here only where that makes room. OfUsers has each session with what its login allowed.
func TestOthersCount(t *testing.T) {
	table, err := session.Open(t.TempDir()+"/sessions.db", newMemory(), discardLog)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	elsewhere := map[string]int{}
	asked := datapath.MAC{}
	table.CountOthers(func(user string, mac datapath.MAC) int { asked = mac; return elsewhere[user] })
	admit := func(label string, device, host byte, login session.Login, want error) {
		t.Helper()
		k := key(device, host)
		if err := table.Lease(k, "", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Admit(k.Addr, login); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", label, err, want)
		}
	}
	one, two := session.Login{User: "Ann", Sessions: 1}, session.Login{User: "Ann", Sessions: 2}
	elsewhere["ann"] = 1
	admit("one elsewhere", 1, 10, one, session.ErrSessions)
	if asked != key(1, 10).MAC {
		t.Errorf("asked about %v", asked)
	}
	admit("one elsewhere of two", 1, 10, two, nil)
	admit("two of two", 2, 20, two, session.ErrSessions)
	admit("the same device at another address", 1, 11, two, nil)
	admit("a name of many people", 3, 30, session.Login{User: "Ann", Sessions: 1, Shared: true}, session.ErrSessions)
	admit("another user", 4, 40, session.Login{User: "ben", Sessions: 1}, nil)
	admit("guests", 5, 50, session.Login{User: "guest", Sessions: 1, Shared: true}, nil)
	list, changing := table.OfUsers([]string{"ann", "ben", "guest", "eve"})
	got := ""
	for _, user := range []string{"ann", "ben", "guest", "eve"} {
		for _, s := range list[user] {
			full, _ := table.Get(s.Addr)
			if full.ID != s.ID || !table.OnLine(full.Began).Round(time.Second).Equal(s.Began.Round(time.Second)) ||
				table.Allowed(full) != s.Most {
				t.Errorf("%+v of %+v", s, full)
			}
			got += fmt.Sprint(user, s.Key, s.Most, " ")
		}
	}
	if want := fmt.Sprint("ann", key(1, 11), 2, " ben", key(4, 40), 1, " guest", key(5, 50), 0, " "); got != want ||
		len(changing) > 0 {
		t.Errorf("%s, want %s; %v", got, want, changing)
	}
}
