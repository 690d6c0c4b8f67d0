// Tests of answers that come late. newAttacker is a socket in place of a server, by which a test receives requests and
// answers them itself, with signed (hostile_test.go); flip makes the answer wrong by one bit. newClient makes a Client
// of the servers in its Config, and credentials is a login.

package radius

import (
	"errors"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/internal/logtest"
)

// TestAnswerOfASlowServerCounts: the first server answers when its part of the time is over and the second, whose
// port is closed or which is silent, was asked. Its answer is the login's, and it is no dead server.
func TestAnswerOfASlowServerCounts(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*attacker) bool{
		"closed": func(a *attacker) bool { return a.conn.Close() == nil },
		"silent": func(*attacker) bool { return true },
	} {
		slow, other := newAttacker(t), newAttacker(t)
		second(other)
		c := newClient(t, Config{Servers: []Server{slow.server(), other.server()}, Timeout: 300 * time.Millisecond,
			Retries: maxRetries})
		c.auth.endpoints[0].deadUntil = time.Now() // on trial: it is sent one packet, and its part is over soon
		go func() {
			r := slow.receive(t)
			await(t, "the second server's turn", func() bool { return c.Stats()[1].Requests > 0 })
			slow.send(t, r.from, signed(r.data, radius.CodeAccessAccept))
		}()
		_, err := c.Authenticate(t.Context(), credentials("alice", "correct horse"))
		if s := c.Stats()[0]; err != nil || s.Answers != 1 || s.Unexpected != 0 || s.Dead {
			t.Errorf("with a second that is %s: %v, counted as %+v", name, err, s)
		}
	}
}

// TestLateAnswerIsNamed: an answer after the login's end admits nobody. It is logged and counted as late, and the
// next login without an answer says so too, instead of doubting address and secret.
func TestLateAnswerIsNamed(t *testing.T) {
	t.Parallel()
	slow, log := newAttacker(t), &logtest.Log{}
	c := newClient(t, Config{Servers: []Server{slow.server()}, Timeout: 100 * time.Millisecond, Retries: -1,
		Log: log.Logger()})
	_, err := c.Authenticate(t.Context(), credentials("alice", "correct horse"))
	if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "does it know this gateway's address") {
		t.Errorf("silent: %v", err)
	}
	r := slow.receive(t)
	slow.send(t, r.from, flip(signed(r.data, radius.CodeAccessAccept), 4)) // not late, but forged
	slow.send(t, r.from, signed(r.data, radius.CodeAccessAccept))
	await(t, "the late answer", func() bool { return c.Stats()[0].Late == 1 })
	want := slow.addr.String() + ": answered after "
	_, err = c.Authenticate(t.Context(), credentials("alice", "correct horse"))
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "radius.timeout") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %q", err, want)
	}
	await(t, "the line", func() bool { return strings.Contains(log.String(), slow.addr.String()+" answered after ") })
	if s := c.Stats()[0]; s.Unexpected != 0 || s.Answers != 0 || s.Forged != 1 || !s.Dead {
		t.Errorf("counted as %+v", s)
	}
}
