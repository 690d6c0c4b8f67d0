package pppoe

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// lines is a log.
type lines struct {
	mu   sync.Mutex // guards what follows
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestSaidOfThoseNotIn: the log says why a session ended that has not logged in, or was refused: one of both, and of a
// flood of sessions that end early it names few.
func TestSaidOfThoseNotIn(t *testing.T) {
	var said lines
	s := newServer(t, "said0", func(c *Config) { c.Waiting, c.Log = 3, slog.New(slog.NewTextHandler(&said, nil)) })
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
		if s.waiting[ending].Len() == 0 {
			return fmt.Errorf("the log says %s", said.String())
		}
		return nil
	})
	leaves(refused)
	count := func(what string) int { return strings.Count(said.String(), what) }
	for what, want := range map[string]int{
		`"pppoe: session ended before its login"`:                                                               1,
		"mac=02:00:00:00:00:01 session=1 reason=\"" + ppp.ErrPeerClosed.Error() + `"`:                           1,
		`"pppoe: login refused"`:                                                                                1,
		`mac=02:00:00:00:00:02 session=4 user="\"ann\\n\\xfc\\\"\\u202e level=ERROR\"" err="permission denied"`: 1,
		"mac=02:00:00:00:00:02":                                                                                 1,
	} {
		if n := count(what); n != want {
			t.Errorf("the log says %s %d times, want %d:\n%s", what, n, want, said.String())
		}
	}
	s.forge(4000)
	if n, all := count("ended before its login"), s.Counts().Displaced; n < 10 || n > maxEnds || all < 1000 {
		t.Errorf("of %d that were displaced the log names %d", all, n)
	}
}
