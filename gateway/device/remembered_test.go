// Tests of remembered devices.

package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

const month = 30 * 24 * time.Hour

// accounts are local accounts, with the marks of their passwords.
type accounts map[string]string

func (a accounts) Recall(user string) (session.Login, string, bool) {
	mark, known := a[user]
	return session.Login{User: user, Limits: session.Limits{UpBps: 1e6}}, mark, known
}

// remembers opens the devices of a file for a month.
func remembers(t *testing.T, path string, local Accounts) *Remembered {
	t.Helper()
	store, err := OpenStore(path)
	netnstest.Must(t, err)
	r, err := OpenRemembered(store, local, month, ahead(0))
	netnstest.Must(t, err)
	return r
}

// ask asks about the device of the tests.
func (r *Remembered) ask() (session.Login, error) {
	return r.Ask(context.Background(), session.Credentials{Key: session.Key{MAC: some}})
}

// begun is a session of a user with the device of the tests.
func begun(user string) session.Session {
	return session.Session{Key: session.Key{MAC: some}, Began: time.Now(), Login: session.Login{User: user}}
}

// TestRememberedOutlast: a device is remembered with its login by another process after a crash, and forgotten too.
func TestRememberedOutlast(t *testing.T) {
	path, after := filepath.Join(t.TempDir(), "remembered.db"), filepath.Join(t.TempDir(), "copy.db")
	r := remembers(t, path, nil)
	defer r.Close()
	login := session.Login{User: "ann", Class: [][]byte{{1, 2}}, Limits: session.Limits{DownBps: 2e6}, Sessions: 3}
	netnstest.Must(t, r.Remember(begun("Ann@example"), login))
	crash := func() *Remembered { // what is on the disk at this moment, as after kill -9
		t.Helper()
		data, err := os.ReadFile(path)
		netnstest.Must(t, err)
		netnstest.Must(t, os.WriteFile(after, data, 0o600))
		return remembers(t, after, nil)
	}
	next := crash()
	got, err := next.ask()
	if err != nil || got.User != "Ann@example" || got.Limits.DownBps != 2e6 || got.Sessions != 3 ||
		got.Way != session.Remembered || len(got.Class) != 1 {
		t.Errorf("after a crash the device gets %+v, %v", got, err)
	}
	next.Close()
	found, err := r.Forget(some)
	if err != nil || !found {
		t.Fatalf("forgetting finds %v, %v", found, err)
	}
	next = crash()
	defer next.Close()
	if _, err := next.ask(); !errors.Is(err, session.ErrRejected) || len(next.All()) != 0 {
		t.Errorf("a forgotten device gets %v after a crash", err)
	}
}

// TestRememberedAccounts: an account is asked for its limits each time. Without it, or with another password, the
// device is forgotten.
func TestRememberedAccounts(t *testing.T) {
	local := accounts{"ann": "one"}
	r := remembers(t, filepath.Join(t.TempDir(), "remembered.db"), local)
	defer r.Close()
	remember := func() { netnstest.Must(t, r.Remember(begun("ann"), session.Login{User: "ann", Local: true})) }
	for _, change := range []func(){func() { delete(local, "ann") }, func() { local["ann"] = "two" }} {
		local["ann"] = "one"
		remember()
		if login, err := r.ask(); err != nil || login.Limits.UpBps != 1e6 {
			t.Errorf("the device gets %+v, %v", login, err)
		}
		change()
		if _, err := r.ask(); !errors.Is(err, session.ErrRejected) {
			t.Errorf("after a change of the account the device gets %v", err)
		}
		local["ann"] = "one"
		if _, err := r.ask(); !errors.Is(err, session.ErrRejected) {
			t.Error("a device that was forgotten is remembered again")
		}
	}
}

// TestRememberedTime: a device is remembered for its time, and no longer than the time that a server gave.
func TestRememberedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Remembered{store: nowhere{}, period: month, line: ahead(0), devices: map[datapath.MAC]Known{}}
		for limit, want := range map[time.Duration]time.Duration{0: month, 2 * month: month, time.Hour: time.Hour} {
			netnstest.Must(t, r.Remember(begun("ann"), session.Login{Limits: session.Limits{SessionTimeout: limit}}))
			time.Sleep(want - time.Second)
			if _, err := r.ask(); err != nil {
				t.Errorf("with a limit of %s the device is forgotten before %s: %v", limit, want, err)
			}
			time.Sleep(time.Second)
			if _, err := r.ask(); err == nil {
				t.Errorf("with a limit of %s the device is remembered after %s", limit, want)
			}
		}
		err := r.Remember(begun("ann"), session.Login{Limits: session.Limits{TotalBytes: 1}})
		if !errors.Is(err, ErrNotRemembered) || len(r.All()) > 0 {
			t.Errorf("a login with a server's quota is remembered: %v", err)
		}
	})
}

// TestRememberedTimeIsNotGivenAgain: a server's time goes on while the device is outside.
func TestRememberedTimeIsNotGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Remembered{store: nowhere{}, period: month, line: ahead(0), devices: map[datapath.MAC]Known{}}
		netnstest.Must(t, r.Remember(begun("ann"), session.Login{Limits: session.Limits{SessionTimeout: time.Hour}}))
		time.Sleep(50 * time.Minute)
		if login, err := r.ask(); err != nil || login.Limits.SessionTimeout != 10*time.Minute {
			t.Errorf("10 minutes before its end the device gets %s, %v", login.Limits.SessionTimeout, err)
		}
	})
}

// ahead is a Line that is ahead of the wall clock.
type ahead time.Duration

func (a ahead) At(wall time.Time) time.Time      { return wall.Add(time.Duration(a)) }
func (a ahead) Time(instant time.Time) time.Time { return instant.Add(-time.Duration(a)) }

// TestRememberedByTheLine: the wall clock's setting neither ends nor prolongs what is remembered, and is what is shown.
func TestRememberedByTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Remembered{store: nowhere{}, period: month, line: ahead(0), devices: map[datapath.MAC]Known{}}
		netnstest.Must(t, r.Remember(begun("ann"), session.Login{}))
		r.line = ahead(-2 * month) // the clock is set 2 months ahead
		time.Sleep(2*month + time.Hour)
		r.tidy()
		_, err := r.ask()
		all := r.All()
		if err != nil || len(all) != 1 || !all[0].Until.Equal(time.Now().Add(month-time.Hour)) {
			t.Errorf("an hour later, by a clock that was set, the device gets %v; shown are %+v", err, all)
		}
		r.line = ahead(0) // the clock was right
		if _, err := r.ask(); !errors.Is(err, session.ErrRejected) {
			t.Errorf("a month after its end the device gets %v", err)
		}
	})
}

// nowhere is a Store that keeps nothing.
type nowhere struct{ Store }

func (nowhere) Write(datapath.MAC, []byte) error { return nil }

// TestEndedSessionsAreForgotten: which ends of sessions have the device forgotten.
func TestEndedSessionsAreForgotten(t *testing.T) {
	for cause, forgets := range map[session.Cause]bool{
		session.SessionTimeout: true, session.Quota: true, session.AdminReset: true, session.IdleTimeout: false,
		session.LeaseEnded: false, session.NASReboot: false, session.UserRequest: false,
	} {
		r := &Remembered{store: nowhere{}, period: month, line: ahead(0), devices: map[datapath.MAC]Known{}}
		netnstest.Must(t, r.Remember(begun("ann"), session.Login{}))
		netnstest.Must(t, r.Ended(begun("bob"), cause))
		if _, err := r.ask(); err != nil {
			t.Errorf("%s: another user's session has it forgotten", cause)
		}
		netnstest.Must(t, r.Ended(begun("ANN"), cause))
		if _, err := r.ask(); (err != nil) != forgets {
			t.Errorf("%s: forgotten %v", cause, !forgets)
		}
	}
}

// TestDamagedStore: a file that is none of ours is an error and not read.
func TestDamagedStore(t *testing.T) {
	dir := t.TempDir()
	for name, fill := range map[string]func(*bbolt.Tx) error{
		"other": func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err },
		"key": func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(bucket)
			return errors.Join(err, b.Put([]byte{1}, []byte("{}")))
		},
		"record": func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(bucket)
			return errors.Join(err, b.Put(some[:], []byte("{")))
		},
	} {
		path := filepath.Join(dir, name)
		db, err := bbolt.Open(path, 0o600, nil)
		netnstest.Must(t, err)
		netnstest.Must(t, db.Update(fill))
		netnstest.Must(t, db.Close())
		if _, err := OpenStore(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTidy: records that have no effect any more are removed.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Remembered{store: nowhere{}, period: month, line: ahead(0), devices: map[datapath.MAC]Known{}}
		netnstest.Must(t, r.Remember(begun("ann"), session.Login{}))
		r.tidy()
		if len(r.devices) != 1 {
			t.Error("a record that has effect is removed")
		}
		time.Sleep(month)
		if r.tidy(); len(r.devices) != 0 {
			t.Error("a record that has no effect is there")
		}
	})
}
