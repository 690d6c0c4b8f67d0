// A test that a book survives kill -9, and benchmarks with 100,000 vouchers.

package voucher

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestKill: of vouchers that are redeemed while the process is killed, each that was answered is redeemed, with its one
// session, and admits no second device; the others are as new.
func TestKill(t *testing.T) {
	if folder := allowancetest.Folder(); folder != "" {
		redeem(t, folder)
		return
	}
	folder := t.TempDir()
	book, err := Open(folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	made, err := book.Create("lobby", 3000, Terms{Devices: 1, ForSeconds: 3600})
	if err = errors.Join(err, book.Close()); err != nil {
		t.Fatal(err)
	}
	answered := map[string]bool{}
	for _, after := range []int{1, 17, 60} {
		for _, name := range allowancetest.Killed(t, folder, after) {
			answered[name] = true
		}
		if book, err = Open(folder, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		for i, v := range made {
			r, _, err := book.read(ID(i + 1))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Uses) > 1 || (len(r.Uses) == 1) != (r.First != 0) || answered[v.Name] && len(r.Uses) != 1 {
				t.Errorf("%s, answered: %v, is %+v", v.Name, answered[v.Name], r)
			}
			if len(r.Uses) == 0 {
				continue
			}
			login, err := book.Login(string(v.Code))
			login.SessionID = "another"
			if err = errors.Join(err, book.Begin(&login, device(i), "")); !errors.Is(err, session.ErrSessions) {
				t.Errorf("%s admits another device: %v", v.Name, err)
			}
		}
		if err := book.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(answered) < 78 {
		t.Errorf("%d vouchers were answered", len(answered))
	}
}

// redeem redeems new vouchers by several devices at once, and tells the name of each.
func redeem(t *testing.T, folder string) {
	book, err := Open(folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var all []Voucher
	if err := book.Each("lobby", func(v Voucher) bool { all = append(all, v); return true }); err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(v Voucher) bool { return v.State != New })
	var devices sync.WaitGroup
	for d := range 8 {
		devices.Go(func() {
			for i := d; i < len(all); i += 8 {
				login, err := book.Login(string(all[i].Code))
				login.SessionID = session.NewID()
				if err = errors.Join(err, book.Begin(&login, device(i), "")); err != nil {
					t.Error(err)
				}
				allowancetest.Done(all[i].Name)
			}
		})
	}
	devices.Wait()
}

const many = 100_000

// BenchmarkCreate makes 100,000 vouchers, in a file of TMPDIR.
func BenchmarkCreate(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		book, err := Open(b.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := book.Create("lobby", many, Terms{Devices: 1, ForSeconds: 3600}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = book.Close()
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/100000")
}

// BenchmarkRedeem redeems vouchers of 100,000 one after the other, in a file of TMPDIR, from the code to the disk. It
// reports the time of a write and fdatasync there besides, of which each needs two.
func BenchmarkRedeem(b *testing.B) {
	folder := b.TempDir()
	book, err := Open(folder, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	made, err := book.Create("lobby", many, Terms{Devices: 1, ForSeconds: 3600})
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		v := made[i*7919%many] // anywhere
		began := time.Now()
		login, err := book.Login(string(v.Code))
		login.SessionID = session.NewID()
		if err = errors.Join(err, book.Begin(&login, device(i), "")); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report := func(name string, all []time.Duration) {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1e3, "ms-"+name+"-p50")
		b.ReportMetric(all[len(all)*99/100].Seconds()*1e3, "ms-"+name+"-p99")
	}
	report("redeem", took)
	f, err := os.CreateTemp(folder, "sync")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var syncs []time.Duration
	for i := range int64(300) {
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), i%64*4096); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		syncs = append(syncs, time.Since(began))
	}
	report("sync", syncs)
	_ = book.Close()
}
