// A test of accounting while the RADIUS server confirms nothing. newWorld makes the host of a gateway with clients and
// a server, in namespaces, and starts RADIUS servers (world_test.go). distinct removes records that were sent twice
// (radius_test.go).

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestUnconfirmedAccounting: FreeRADIUS confirms no event of a user with 150 sessions. Meanwhile events of others are
// sent and confirmed, those of the 150 sessions wait, and each end of a session is logged once, however often its event
// is sent.
func TestUnconfirmedAccounting(t *testing.T) {
	t.Parallel()
	const stuck = 150
	w := newWorld(t)
	w.start()
	verbs, err := w.control()
	must(t, err)
	login := func(n int, user string) control.Session {
		s, err := verbs.Login(t.Context(), control.LoginRequest{
			Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(n + 50)}), MAC: fmt.Sprintf("02:00:00:00:09:%02x", n), User: user,
		})
		must(t, err)
		return s
	}
	for n := range stuck {
		login(n, "unconfirmed")
	}
	_, err = verbs.Logout(t.Context(), control.LogoutRequest{Addr: netip.AddrFrom4([4]byte{10, 1, 0, 50})})
	must(t, err)
	for range 3 {
		one := login(stuck, "ann")
		w.acct.awaitAccounting("Start", one.ID)
		_, err = verbs.Logout(t.Context(), control.LogoutRequest{User: "ann"})
		must(t, err)
		w.acct.awaitAccounting("Stop", one.ID)
		if got := kinds(distinct(t, w.acct.accounting(one.ID))); !slices.Equal(got, []string{"Start", "Stop"}) {
			t.Errorf("FreeRADIUS was told %v", got)
		}
	}
	eventually(t, "a second attempt", func() error {
		st, err := w.status()
		if err == nil && (st.RADIUS["retransmit"] < 2*stuck || st.Outbox != stuck+1) {
			err = fmt.Errorf("%d sent again, %d events wait", st.RADIUS["retransmit"], st.Outbox)
		}
		return err
	})
	if n := strings.Count(w.daemon.output(), "session ended"); n != 4 {
		t.Errorf("%d ends of 4 sessions are logged", n)
	}
}
