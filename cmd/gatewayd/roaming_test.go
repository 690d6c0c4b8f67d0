// Tests of devices that go from one gateway to another: two daemons with data paths, clients and FreeRADIUS of their
// own, which share a server of Redis. newWorld makes the host of a gateway (world_test.go), shareWith lets two share a
// server (store_test.go).

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// roamingPair starts two gateways between which devices roam.
func roamingPair(t *testing.T) (one, two *world, server *redistest.Server) {
	one, two = newWorld(t), newWorld(t)
	server = one.shareWith(two)
	for _, w := range []*world{one, two} {
		w.add("gatewayd.toml", "roaming = \"mac\"\n")
		w.start()
		eventually(t, "the store is there", func() error {
			s, err := w.status()
			if err == nil && (s.Store == nil || !s.Store.Up) {
				err = fmt.Errorf("%+v", s.Store)
			}
			return err
		})
	}
	return one, two, server
}

// at returns the same device at another gateway, where it has no address yet.
func (c *client) at(w *world) *client {
	w.t.Helper()
	other := w.addUnaddressed()
	other.sh("ip link set c0 address " + strings.ToLower(strings.ReplaceAll(c.station(), "-", ":")))
	return other
}

// knows waits until a server of Redis has a client's session with a user.
func knows(t *testing.T, server *redistest.Server, gateway string, c *client, user string) {
	t.Helper()
	eventually(t, gateway+" tells of the session", func() error {
		if record := server.CLI("HGET", "gateweigh:sessions:"+gateway, c.addr.String()); !strings.Contains(record, user) {
			return fmt.Errorf("%q", record)
		}
		return nil
	})
}

// roams waits until a client has come in without a login, and returns its session.
func (c *client) roams() (s control.Session) {
	c.w.t.Helper()
	eventually(c.w.t, "the device comes in at the other gateway", func() error {
		c.looksAround()
		if s = c.session(); s.State != control.State(session.Authenticated) {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	return s
}

// TestRoaming: a device whose person logged in at one gateway comes in at another without a login, with the same user
// and Class and the rest of its quota, and no longer passes the former one. Both account for their part of it. It comes
// back the same way. Long: the steps of one run.
func TestRoaming(t *testing.T) {
	t.Parallel()
	one, two, server := roamingPair(t)
	phone := one.client()
	began := phone.logIn("frugal")
	phone.sh("ping -c 5 -i 0.01 " + serverAddr.String())
	knows(t, server, "gw1", phone, "frugal")
	moved := phone.at(two)
	moved.lease()
	second := moved.roams()
	if second.User != "frugal" || second.ID == began.ID || second.Way != "" {
		t.Errorf("the session is %+v", second)
	}
	if !moved.passes(true) {
		t.Error("the device does not pass where it is")
	}
	if phone.passes(false) {
		t.Error("the device passes where it was")
	}
	stop := one.acct.awaitAccounting("Stop", began.ID)
	if stop.value("Acct-Terminate-Cause") != "NAS-Request" || stop.number("Acct-Input-Packets") < 5 {
		t.Errorf("the former gateway accounts %v", stop)
	}
	start := two.acct.awaitAccounting("Start", second.ID)
	if start.value("Class") != stop.value("Class") || start.value("User-Name") != "frugal" {
		t.Errorf("the new gateway accounts %v after %v", start, stop)
	}
	before, after := quotaOf(t, began), quotaOf(t, second)
	if used := stop.counts(); after != before-used.UpBytes-used.DownBytes {
		t.Errorf("%d bytes are left of %d after %+v", after, before, used)
	}
	knows(t, server, "gw2", moved, "frugal")
	third := phone.roams()
	if third.User != "frugal" || moved.passes(false) {
		t.Errorf("back at the first: %+v", third)
	}
	stop = two.acct.awaitAccounting("Stop", second.ID)
	if used := stop.counts(); quotaOf(t, third) != after-used.UpBytes-used.DownBytes {
		t.Errorf("%d bytes are left of %d after %+v", quotaOf(t, third), after, used)
	}
	flaps(t, phone, moved, third)
	for w, want := range map[*world]string{one: "in 11 out 11", two: "in 11 out 11"} {
		s, err := w.status()
		must(t, err)
		if got := fmt.Sprintf("in %d out %d", s.Roams["in"], s.Roams["out"]); got != want {
			t.Errorf("%s: roams are %s, want %s: %v", w.id, got, want, s.Roams)
		}
	}
}

// flaps has a device go from one gateway to another and back ten times. Each session is accounted for once, and the
// octets of all add up to what the quota has lost.
func flaps(t *testing.T, phone, moved *client, last control.Session) {
	t.Helper()
	first, used := quotaOf(t, last), uint64(0)
	here, there := phone, moved
	for range 20 {
		here.sh("ping -c 1 -W 5 " + serverAddr.String())
		next := there.roams()
		stop := here.w.acct.awaitAccounting("Stop", last.ID)
		if got := fmt.Sprint(order(here.w.acct.accounting(last.ID))); got != "[Start Stop]" {
			t.Errorf("a session of a device that flaps is accounted by %s", got)
		}
		used += stop.counts().UpBytes + stop.counts().DownBytes
		here, there, last = there, here, next
	}
	if left := quotaOf(t, last); used == 0 || left != first-used {
		t.Errorf("%d bytes are left of %d after %d", left, first, used)
	}
}

// quotaOf returns the bytes that a session may have in all.
func quotaOf(t *testing.T, s control.Session) uint64 {
	t.Helper()
	if s.Limits.TotalBytes == 0 {
		t.Fatalf("no quota in %+v", s.Limits)
	}
	return s.Limits.TotalBytes
}

// TestRoamingAway: a device comes in at another gateway while its own is killed; that one ends the session when it
// comes back, and accounts for it once. While the store does not answer a device sees the login page, and comes in
// afterwards. Long: the steps of one run.
func TestRoamingAway(t *testing.T) {
	t.Parallel()
	one, two, server := roamingPair(t)
	phone, laptop := one.client(), one.client()
	began := phone.logIn("ann")
	laptop.logIn("ann")
	knows(t, server, "gw1", phone, "ann")
	knows(t, server, "gw1", laptop, "ann")

	server.Stop()
	other := laptop.at(two)
	eventually(t, "gw2 notices", func() error {
		s, err := two.status()
		if err == nil && s.Store.Up {
			err = fmt.Errorf("%+v", s.Store)
		}
		return err
	})
	other.lease()
	if got := other.looksAround(); !strings.HasPrefix(got, "302 ") || !laptop.passes(true) {
		t.Errorf("without the store the device gets %s, and passes where it was: %v", got, laptop.passes(true))
	}
	server.Continue()
	other.roams()

	one.kill()
	moved := phone.at(two)
	moved.lease()
	second := moved.roams()
	if second.User != "ann" || !moved.passes(true) {
		t.Errorf("the session is %+v", second)
	}
	one.start()
	eventually(t, "the former gateway ends the session", func() error {
		if s := phone.session(); s.State == control.State(session.Authenticated) {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	one.acct.awaitAccounting("Stop", began.ID)
	if got := fmt.Sprint(order(one.acct.accounting(began.ID))); got != "[Start Stop]" {
		t.Errorf("the former gateway accounts %s", got)
	}
	if s := moved.session(); s.ID != second.ID || phone.passes(false) {
		t.Errorf("afterwards: %+v", s)
	}
	eventually(t, "the store has what the former gateway has", func() error {
		s, err := one.status()
		if err == nil && (s.Store.Foreign != 0 || s.Store.Waiting != 0 || s.Roams["lost"] != 1) {
			err = fmt.Errorf("%+v, %v", s.Store, s.Roams)
		}
		return err
	})
}
