package pppoe

import (
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// TestEndBeforeLoginIsLogged: the log says why a session ended that has not logged in, or was refused: one of both, and
// of a flood of sessions that end early it names few.
func TestEndBeforeLoginIsLogged(t *testing.T) {
	var logs logtest.Log
	s := newServer(t, "said0", func(c *Config) { c.Waiting, c.Log = 3, logs.Logger() })
	leaver, refused := pppoe.MAC{2, 0, 0, 0, 0, 1}, pppoe.MAC{2, 0, 0, 0, 0, 2}
	leaves := func(mac pppoe.MAC) {
		s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADT, Session: s.byMAC[mac][0].id}).Append(nil))
	}
	for range 3 {
		s.request(leaver)
		leaves(leaver)
	}
	s.presentsAs(refused, "ann\n\xfc\"\u202e level=ERROR")
	netnstest.Await(t, "the refusal", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[terminating].Len() == 0 {
			return fmt.Errorf("the log says %s", logs.String())
		}
		return nil
	})
	leaves(refused)
	for label, want := range map[string]int{
		`"pppoe: session ended before its login"`:                                                               1,
		"mac=02:00:00:00:00:01 session=1 reason=\"" + ppp.ErrPeerClosed.Error() + `"`:                           1,
		`"pppoe: login refused"`:                                                                                1,
		`mac=02:00:00:00:00:02 session=4 user="\"ann\\n\\xfc\\\"\\u202e level=ERROR\"" err="permission denied"`: 1,
		"mac=02:00:00:00:00:02":                                                                                 1,
	} {
		if n := logs.Count(label); n != want {
			t.Errorf("the log says %s %d times, want %d:\n%s", label, n, want, logs.String())
		}
	}
	s.forge(4000)
	if n, all := logs.Count("ended before its login"), s.Counts().Displaced; n < 10 || n > maxEnds || all < 1000 {
		t.Errorf("of %d that were displaced the log names %d", all, n)
	}
}
