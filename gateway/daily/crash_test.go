// A test that a book survives kill -9.

package daily

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// perSession is how many bytes each session of the test uses.
const perSession = 10

var killTerms = Terms{Clock: Clock{0, time.UTC}, Device: Amount{Bytes: 1 << 40}, Room: Amount{Bytes: 1 << 40}}

// TestKill: of sessions that end while the process is killed, each whose end was accounted is counted, once, for its
// device and its room; no session stays open.
func TestKill(t *testing.T) {
	if folder := allowancetest.Folder(); folder != "" {
		useDay(t, folder)
		return
	}
	folder := t.TempDir()
	accounted := map[string]uint64{} // by device
	for round, after := range []int{1, 40, 200} {
		for _, done := range allowancetest.Killed(t, folder, after) {
			accounted[done] += perSession
		}
		book, err := Open(folder, "", killTerms, slog.New(slog.DiscardHandler))
		if err == nil {
			err = book.Serve(&allowancetest.Table{}, func(session.Session) (device, room Holder) { return "", "" })
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for n := range byte(8) {
			r, err := book.read(DeviceOf(client(n).MAC))
			if err != nil {
				t.Fatal(err)
			}
			sum += r.Bytes
			// One more may have been written and not answered.
			device := fmt.Sprint(n)
			least := accounted[device]
			if r.Bytes < least || r.Bytes > least+perSession || len(r.Uses) > 0 {
				t.Errorf("killed after %d: device %s has used %d bytes of %d accounted, open are %+v", after, device, r.Bytes,
					least, r.Uses)
			}
			accounted[device] = r.Bytes
		}
		// An end that nobody answered may be in the room's record alone, one of each device. A gateway has it in the ends
		// that are not accounted, and counts it when it starts.
		most := sum + uint64(round+1)*8*perSession
		if r, err := book.read(RoomOf("204")); err != nil || r.Bytes < sum || r.Bytes > most || len(r.Uses) > 0 {
			t.Errorf("killed after %d: the room has used %d bytes and its devices %d; open are %+v, %v", after, r.Bytes, sum,
				r.Uses, err)
		}
		if n := book.sessions.Number(); n != 0 {
			t.Errorf("killed after %d: %d sessions are open", after, n)
		}
		if err := book.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// useDay begins and ends sessions of several devices of a room at once, and tells the device of each that was
// accounted.
func useDay(t *testing.T, folder string) {
	book, err := Open(folder, "", killTerms, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var devices sync.WaitGroup
	for n := range byte(8) {
		devices.Go(func() {
			for range 2000 {
				key := client(n)
				login := session.Login{SessionID: session.NewID()}
				if err := book.Begin(&login, key, DeviceOf(key.MAC), RoomOf("204")); err != nil {
					t.Error(err)
					return
				}
				ended := session.Event{Kind: session.Ended, At: time.Now(),
					Session: session.Session{Key: key, ID: login.SessionID, Began: time.Now()}}
				ended.UpBytes = perSession
				if err := book.EndAccounted(ended); err != nil {
					t.Error(err)
					return
				}
				allowancetest.Done(n)
			}
		})
	}
	devices.Wait()
}
