// Tests of Claim, by which a device gets an address of its own. memory_test.go has the helpers: newMemory is a data
// path in memory; key(mac, host) is MAC 02:00:00:00:00:mac at 10.1.0.host and keyOf(i) the key of client i; openTable
// opens a table in a file; lease gives a client a lease, get reads its session.

package session_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestClaimsShareTheDisk: one write to the disk stores all claims that came during the last one.
func TestClaimsShareTheDisk(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	resume, err := table.StopWriting()
	if err != nil {
		t.Fatal(err)
	}
	const many = 200
	errs := make(chan error, many)
	for i := range many {
		go func() { errs <- table.Claim(keyOf(i), time.Now().Add(time.Hour), 4) }()
	}
	for table.Known() < many { // until all are about to wait for the disk, or do
		time.Sleep(time.Millisecond)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	before, err := table.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	for range many {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	after, err := table.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	if n := after - before; n > many/10 {
		t.Errorf("%d claims took %d transactions, want a tenth at most", many, n)
	}
	for i := range many {
		get(t, table, keyOf(i))
	}
}

// TestClaimsAtTheSameTime: concurrent claims of a MAC address get it at most as many addresses as it may have. Of
// several claims of one address one succeeds. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestClaimsAtTheSameTime(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	claim := func(keys ...session.Key) (refused []error, got int) {
		errs := make([]error, len(keys))
		var all sync.WaitGroup
		for i, k := range keys {
			all.Go(func() { errs[i] = table.Claim(k, time.Now().Add(time.Hour), 4) })
		}
		all.Wait()
		for _, err := range errs {
			if err == nil {
				got++
			} else {
				refused = append(refused, err)
			}
		}
		return refused, got
	}
	only := func(errs []error, want error) bool {
		return !slices.ContainsFunc(errs, func(e error) bool { return !errors.Is(e, want) })
	}
	var one []session.Key
	for host := range byte(40) {
		one = append(one, key(1, 10+host))
	}
	if refused, got := claim(one...); got != 4 || !only(refused, session.ErrAddresses) {
		t.Errorf("a MAC address got %d addresses, want 4; refused: %v", got, errors.Join(refused...))
	}
	var rivals []session.Key
	for mac := range byte(40) {
		rivals = append(rivals, key(2+mac, 100))
	}
	if refused, got := claim(rivals...); got != 1 || !only(refused, session.ErrTaken) {
		t.Errorf("%d have one address, want 1; refused: %v", got, errors.Join(refused...))
	}
	winner, _ := table.Get(rivals[0].Addr)
	if _, got := claim(winner.Key, winner.Key); got != 2 {
		t.Error("a client cannot claim its own address again")
	}
	// A forgotten claim makes room, and a refused one takes none.
	for s := range table.Each {
		if s.MAC == one[0].MAC {
			if gone, err := table.ForgetStranger(s.Key); err != nil || !gone {
				t.Errorf("forgetting %s: %v, %v", s.Key, gone, err)
			}
		}
	}
	if _, got := claim(one...); got != 4 {
		t.Errorf("after its claims were forgotten a MAC address got %d addresses, want 4", got)
	}
}

// TestForgetStrangersKeepsLogins: ForgetStranger does not remove a client that is being admitted, although its session
// is not visible yet.
func TestForgetStrangersKeepsLogins(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	k := key(1, 5)
	lease(t, table, k)
	resume, err := table.StopWriting()
	if err != nil {
		t.Fatal(err)
	}
	admitted, forgotten := make(chan error), make(chan bool)
	go func() {
		_, err := table.Admit(k.Addr, session.Login{User: "ada"})
		admitted <- err
	}()
	for table.Waiting() == 0 { // until its start waits for the disk
		time.Sleep(time.Millisecond)
	}
	if s := get(t, table, k); s.State != session.Leased {
		t.Fatalf("a client whose login is not on the disk is %s", s.State)
	}
	go func() {
		gone, err := table.ForgetStranger(k)
		if err != nil {
			t.Error(err)
		}
		forgotten <- gone
	}()
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-admitted; err != nil {
		t.Fatal(err)
	}
	if <-forgotten {
		t.Error("a client that has logged in was forgotten")
	}
	if s := get(t, table, k); s.State != session.Authenticated || !dp.admits(k) {
		t.Errorf("a client that has logged in is %s", s.State)
	}
}

// BenchmarkClaims counts the claims a second of 1,000 clients that come one after the other, and 64 at a time.
func BenchmarkClaims(b *testing.B) {
	for _, atOnce := range []int{1, 64} {
		b.Run(fmt.Sprint(atOnce, " at once"), func(b *testing.B) {
			const clients = 1000
			claimed := 0
			for b.Loop() {
				table := openTable(b, filepath.Join(b.TempDir(), "s.db"), newMemory())
				var next atomic.Int64
				inParallel(b, atOnce, func() error {
					for i := int(next.Add(1)) - 1; i < clients; i = int(next.Add(1)) - 1 {
						if err := table.Claim(keyOf(i), time.Now().Add(time.Hour), 4); err != nil {
							return err
						}
					}
					return nil
				})
				claimed += clients
			}
			b.ReportMetric(float64(claimed)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}
