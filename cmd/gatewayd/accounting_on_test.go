// A test of Accounting-On, by which the daemon tells RADIUS servers that former sessions are lost. newWorld makes the
// host of a gateway with clients and a server, in namespaces, and starts RADIUS servers (world_test.go).

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestAccountingOnAfterLostSessions: a gateway that starts without the sessions that it had, because their file is
// damaged, empty or missing, logs that and sends FreeRADIUS Accounting-On, before any session and only once, also if
// FreeRADIUS does not run at first. Detach sends Accounting-Off; for sessions that go on afterwards the gateway sends
// Start again. Long: the steps of one run, each of which needs the state that the one before left.
func TestAccountingOnAfterLostSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sh(`sed -i '/^\[radius\]/a called_station_id = "02-00-00-00-00-FF:Guests"' $DIR/gatewayd.toml`)
	table := filepath.Join(w.Dir, "state", "sessions.db")
	addr := netip.MustParseAddr("10.1.0.80")
	login := func(user string) control.Session {
		verbs, err := w.control()
		must(t, err)
		s, err := verbs.Login(t.Context(), control.LoginRequest{Addr: addr, MAC: "02:00:00:00:09:01", User: user})
		must(t, err)
		return s
	}
	settled := func(phase string) {
		t.Helper()
		eventually(t, phase+": that all events are sent", func() error {
			st, err := w.status()
			if err == nil && st.Outbox > 0 {
				err = fmt.Errorf("%d events wait", st.Outbox)
			}
			return err
		})
	}
	var want []string
	for _, c := range []struct {
		name, logged string
		spoil        func()
	}{
		{"first start", "", func() {}},
		{"damaged", "a state file is damaged", func() { must(t, os.WriteFile(table, make([]byte, 64<<10), 0o600)) }},
		{"empty", "the session table is empty: every client must log in again", func() { must(t, os.Truncate(table, 0)) }},
		{"missing", "the session table is missing: every client must log in again", func() { must(t, os.Remove(table)) }},
	} {
		c.spoil()
		seen := 0
		if w.daemon != nil {
			seen = len(w.daemon.output())
		}
		away := c.name == "empty"
		if away {
			w.acct.stop()
		}
		w.start()
		if logged := w.daemon.output()[seen:]; !strings.Contains(logged, c.logged) ||
			c.logged == "" && strings.Contains(logged, "every client must log in") {
			t.Errorf("%s: the log is\n%s", c.name, logged)
		}
		one := login("ann")
		if away {
			w.acct.start()
		}
		start := w.acct.awaitAccounting("Start", one.ID)
		if start.value("Called-Station-Id") != "02-00-00-00-00-FF:Guests" {
			t.Errorf("accounted as %v", start)
		}
		want = append(want, "Accounting-On", "Start")
		settled(c.name)
		w.daemon.signalAndWait(syscall.SIGTERM)
		w.start() // it has its sessions: no Accounting-On
		settled(c.name)
		w.kill()
		if diff := cmp.Diff(want, order(w.acct.accounting(""))); diff != "" {
			t.Fatalf("%s: FreeRADIUS was told (-want +got)\n%s", c.name, diff)
		}
	}
	w.start()
	kept, err := w.session("ann")
	must(t, err)
	id := kept.ID
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.sh(`nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml`)
	w.start()
	want = append(want, "Accounting-Off", "Accounting-On", "Start")
	eventually(t, "the Start of the session that goes on after detach", func() error {
		all := w.acct.accounting("")
		if diff := cmp.Diff(want, order(all)); diff != "" || all[len(all)-1].value("Acct-Session-Id") != id {
			return fmt.Errorf("FreeRADIUS was told (-want +got)\n%s, at last %v", diff, all[len(all)-1])
		}
		return nil
	})
	settled("after detach")
	if s, err := w.session("ann"); err != nil || s.ID != id {
		t.Errorf("the session of before detach is %+v, %v", s, err)
	}
	w.kill()
	w.acct.stop()
	if out, err := w.try(`nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml`); err != nil ||
		!strings.Contains(out, "RADIUS servers do not know") {
		t.Errorf("detach without a server: %v\n%s", err, out)
	}
}
