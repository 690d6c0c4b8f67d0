// Tests of requests about sessions that have ended. control_test.go has the helpers: authenticated(n) is a table of n
// sessions; start serves it and returns the path of the socket; dial connects; numbered(n) is the n-th address of
// 10.0.0.0/8.

package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestLogoutOnAFullDisk: sessions whose end is not on the disk yet have ended, and the answer says so.
func TestLogoutOnAFullDisk(t *testing.T) {
	table := authenticated(6)
	table.endErr = fmt.Errorf("end the session: %w", session.ErrLater)
	c := dial(t, start(t, table, stallTimeout))
	for _, l := range []struct {
		req  LogoutRequest
		want LogoutReply
	}{{LogoutRequest{Addr: numbered(4)}, LogoutReply{1, 1}}, {LogoutRequest{All: true}, LogoutReply{5, 5}}} {
		if got, err := c.Logout(t.Context(), l.req); got != l.want || err != nil {
			t.Errorf("logout %+v: %+v, %v", l.req, got, err)
		}
	}
}

// TestExpiredSessionsNotShown: a session whose end has passed is not shown as one, also before the table has ended it,
// and can still be ended.
func TestExpiredSessionsNotShown(t *testing.T) {
	table := authenticated(2)
	table.all[1].Limits.SessionTimeout = time.Minute
	c := dial(t, start(t, table, stallTimeout))
	client, err := c.Session(t.Context(), numbered(1))
	if err != nil || client.State != session.PreAuth || client.LastEnd.Cause != session.SessionTimeout {
		t.Errorf("it is shown as %+v, %v", client, err)
	}
	in := 0
	err = c.Sessions(t.Context(), Filter{State: session.Authenticated}, func(Session) error { in++; return nil })
	if err != nil || in != 1 {
		t.Errorf("%d sessions are listed, %v", in, err)
	}
	if n, err := c.Logout(t.Context(), LogoutRequest{All: true}); n.Ended != 2 || err != nil {
		t.Errorf("%+v ended, %v", n, err)
	}
}
