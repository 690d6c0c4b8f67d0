// Tests that kill the daemon. newWorld makes the host of a gateway with clients and a server, in namespaces, and starts
// RADIUS servers (world_test.go); a flow sends numbered UDP datagrams through it and records which arrive
// (flow_test.go). distinct removes accounting records that were sent twice (radius_test.go).

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestKilledBeforeAccounting kills the daemon when a session has begun and when it has ended, each time before
// FreeRADIUS is told: it is told one Start and one Stop, with the session's true length. The daemon's state is that of
// a machine that started with its clock in 1970, which was set later.
func TestKilledBeforeAccounting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begunIn1970()
	w.start()
	ann := w.client()
	w.acct.stop()
	id := ann.logIn("ann").ID
	w.kill()
	w.start()
	if s := ann.session(); s.ID != id || time.Since(s.Began).Abs() > time.Hour {
		t.Errorf("after a restart the client is %+v", s)
	}
	f := w.flow(ann, true, 0)
	f.sendFew(100)
	f.expectAll(t, "datagrams after a restart")
	ann.logOut()
	w.kill()
	w.start()
	// The session has ended, and the lease has not.
	if s := ann.session(); s.ID == id || time.Until(s.LeaseEnd) < time.Minute {
		t.Errorf("the client is %+v", s)
	}
	if s, err := w.status(); err != nil || s.Outbox != 2 {
		t.Errorf("%d events wait for accounting (%v), want 2", s.Outbox, err)
	}
	w.acct.start()
	if stop := w.acct.awaitAccounting("Stop", id); stop.counts() != f.traffic(true) {
		t.Errorf("Stop has %+v, and the client's kernel has %+v", stop.counts(), f.traffic(true))
	}
	if got := kinds(distinct(t, w.acct.accounting(id))); !slices.Equal(got, []string{"Start", "Stop"}) {
		t.Errorf("FreeRADIUS was told %v", got)
	}
	for _, r := range w.acct.accounting(id) {
		instant, err := time.ParseInLocation("Jan _2 2006 15:04:05 MST", r.value("Event-Timestamp"), time.Local)
		if err != nil || time.Since(instant).Abs() > time.Hour ||
			r.value("Acct-Status-Type") == "Stop" && r.number("Acct-Session-Time") > 3600 {
			t.Errorf("at %s, %v: %v", instant, err, r)
		}
	}
}

// begunIn1970 makes the state of a daemon that began in 1970, an hour ago by the monotonic clock.
func (w *world) begunIn1970() {
	w.sh(`mkdir -p -m 700 $DIR/state
awk -v boot=$(cat /proc/sys/kernel/random/boot_id) '{printf "1 %s %.0f 3600000000000 0 3600000000000\n", boot, ($1 - 3600) * 1e9}' /proc/uptime >$DIR/state/clock`)
}

// TestKilledAtAnyTime kills the daemon some milliseconds after logins and logouts, while it sends accounting.
// FreeRADIUS gets each record; those that the daemon had not marked as confirmed it may get again, unchanged.
func TestKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	eventually(t, "that FreeRADIUS has confirmed the start", func() error { // the next daemon would tell it again
		if _, err := os.Stat(filepath.Join(w.Dir, "state", "accounting-on")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("accounting-on is there: %v", err)
		}
		return nil
	})
	ann := w.client()
	var ids []string
	for range 6 {
		ids = append(ids, ann.logIn("ann").ID)
		time.Sleep(time.Duration(rand.N(10)) * time.Millisecond)
		w.kill()
		w.start()
		ann.logOut()
		time.Sleep(time.Duration(rand.N(10)) * time.Millisecond)
		w.replace()
	}
	again := 0
	for _, id := range ids {
		w.acct.awaitAccounting("Stop", id)
		all := w.acct.accounting(id)
		once := distinct(t, all)
		if got := kinds(once); !slices.Equal(got, []string{"Start", "Stop"}) {
			t.Errorf("session %s: FreeRADIUS was told %v", id, kinds(all))
		}
		again += len(all) - len(once)
	}
	t.Logf("of %d events of %d sessions %d were sent again", 2*len(ids), len(ids), again)
	began := 0
	for _, r := range w.acct.accounting("") {
		if r.value("Acct-Status-Type") == "Accounting-On" {
			began++
		} else if !slices.Contains(ids, r.value("Acct-Session-Id")) {
			t.Errorf("FreeRADIUS was told of a session that nobody began: %v", r)
		}
	}
	if began != 1 {
		t.Errorf("Accounting-On was sent %d times, want once: all later daemons found their sessions", began)
	}
}

// TestNobodyThere: while the daemon is dead, the kernel applies time limits and quotas, and no unauthenticated client
// gets in. brief has a session of five seconds, frugal a quota, bob is not logged in, and late comes without a lease.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	brief, frugal, ann, bob := w.client(), w.client(), w.client(), w.client()
	late := w.addUnaddressed()
	sessions := map[*client]control.Session{}
	for user, c := range map[string]*client{"frugal": frugal, "ann": ann} {
		sessions[c] = c.logIn(user)
	}
	sessions[brief] = brief.logIn("brief")
	w.web()
	w.kill()

	flows := map[*client]*flow{}
	for _, c := range []*client{brief, frugal, ann, bob} {
		flows[c] = w.flow(c, true, 500)
		flows[c].start()
	}
	flows[brief].lastsFiveSeconds(t, sessions[brief].Began)
	for _, f := range flows {
		f.halt()
	}
	staysOut(t, late, bob)
	flows[ann].expectAll(t, "datagrams of a client that is logged in")
	if n := flows[bob].received.Load(); n > 0 {
		t.Errorf("%d datagrams of a client that is not logged in arrived", n)
	}
	// The packet that reaches the quota is the last one.
	const packet, quota = udpHeaders + datagramBytes, 1_000_000
	if n := flows[frugal].received.Load(); n != (quota+packet-1)/packet {
		t.Errorf("%d datagrams arrived, want the %d of the quota", n, (quota+packet-1)/packet)
	}

	w.start()
	for _, c := range []*client{brief, frugal} {
		w.accountedEnd(t, c, sessions[c], flows[c])
	}
	if s := ann.session(); s.ID != sessions[ann].ID || s.Traffic != flows[ann].traffic(true) {
		t.Errorf("for the next daemon the session is %+v, was %+v", s, sessions[ann])
	}
	late.sh("ip addr flush dev c0")
	late.sh(late.udhcpc("-n"))
	bob.logIn("ann")
	bob.sh(reachesWeb)
}

// lastsFiveSeconds waits until a session of five seconds that began then is over. It checks that what was sent in the
// first four seconds arrives, and nothing that is sent after the end.
func (f *flow) lastsFiveSeconds(t *testing.T, began time.Time) {
	t.Helper()
	end := began.Add(5 * time.Second)
	time.Sleep(time.Until(end.Add(-time.Second)))
	within := f.sent.Load()
	if time.Now().After(end) {
		within = 1 // the machine was too busy to look in time
	}
	time.Sleep(time.Until(end) + 100*time.Millisecond) // times of sessions are rounded
	last := f.sent.Load()                              // the number of the next datagram, which may be on its way
	eventually(t, "datagrams of a session of five seconds", func() error {
		if came := f.received.Load(); came < within {
			return fmt.Errorf("%d of %d arrived", came, within)
		}
		return nil
	})
	eventually(t, "datagrams after its end", func() error {
		if sent := f.sent.Load(); sent < last+250 {
			return fmt.Errorf("%d were sent", sent-last)
		}
		return nil
	})
	if highest := f.highest.Load(); highest > last {
		t.Errorf("number %d arrived, and %d was the first after the session's end", highest, last+1)
	}
}

// accountedEnd checks the accounting of a session that ended while there was no daemon: FreeRADIUS is told a
// Session-Timeout, with the bytes that the server's kernel received.
func (w *world) accountedEnd(t *testing.T, c *client, before control.Session, f *flow) {
	t.Helper()
	stop := w.acct.awaitAccounting("Stop", before.ID)
	n := f.received.Load()
	want := control.Traffic{UpBytes: n * (udpHeaders + datagramBytes), UpPackets: n}
	if stop.counts() != want || stop.value("Acct-Terminate-Cause") != "Session-Timeout" {
		t.Errorf("Stop has %+v (%s), and the server's kernel has %+v", stop.counts(), stop.value("Acct-Terminate-Cause"),
			want)
	}
	if before.User == "brief" && stop.value("Acct-Session-Time") != "5" {
		t.Errorf("a session of five seconds is accounted with %s s", stop.value("Acct-Session-Time"))
	}
	eventually(t, "the session's end in the daemon's table", func() error {
		if s := c.session(); s.State == session.Authenticated {
			return fmt.Errorf("it has %+v", s)
		}
		return nil
	})
}

// reachesWeb is a command that fails unless the server's page is answered.
const reachesWeb = `curl -s --max-time 2 http://192.0.2.2:8080/`

// staysOut checks that clients get nothing without a daemon: no lease, no DNS answer and no page, also with an address
// that they chose themselves.
func staysOut(t *testing.T, clients ...*client) {
	t.Helper()
	var tries sync.WaitGroup
	for _, c := range clients {
		if !c.addr.IsValid() {
			if out, err := c.try(c.udhcpc("-n -t 2 -T 1")); err == nil {
				t.Errorf("a lease without a daemon:\n%s", out)
			}
			c.addr = neverLeased
			c.sh("sh -c 'ip addr add " + neverLeased.String() + "/24 dev c0; ip route add default via 10.1.0.1'")
		}
		for label, command := range map[string]string{
			"ping":       `ping -c 2 -i 0.2 -W 1 192.0.2.2`,
			"HTTP":       `curl -s --max-time 2 http://192.0.2.2/`,
			"other TCP":  reachesWeb,
			"the portal": `curl -s --max-time 2 http://10.1.0.1:8080/`,
			"DNS":        `timeout 2 busybox nslookup example.org 10.1.0.1`,
		} {
			tries.Go(func() {
				if out, err := c.try(command); err == nil {
					t.Errorf("%s from %s:\n%s", label, c.addr, out)
				}
			})
		}
	}
	tries.Wait()
}

// web starts web servers on the ports that clients try.
func (w *world) web() {
	w.t.Helper()
	w.inHost("server", func() error {
		for _, port := range []int{80, 8080} {
			l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: serverAddr.AsSlice(), Port: port})
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { l.Close() })
			go http.Serve(l, http.NotFoundHandler())
		}
		return nil
	})
}
