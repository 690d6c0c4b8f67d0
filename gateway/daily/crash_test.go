// A test that a book survives kill -9.

package daily

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// inChild is the variable of the environment that makes a test use the book in the folder that it names.
const inChild = "GATEWEIGH_TEST_DAY"

// perSession is how many bytes each session of the test uses.
const perSession = 10

var killTerms = Terms{Clock: Clock{0, time.UTC}, Device: Amount{Bytes: 1 << 40}, Room: Amount{Bytes: 1 << 40}}

// TestKill: of sessions that end while the process is killed, each whose end was accounted is counted, once, for its
// device and its room; no session stays open.
func TestKill(t *testing.T) {
	if folder := os.Getenv(inChild); folder != "" {
		useDay(t, folder)
		return
	}
	folder := t.TempDir()
	accounted := map[byte]uint64{}
	for round, after := range []int{1, 40, 200} {
		killed(t, folder, after, accounted)
		book, err := Open(folder, "", killTerms, slog.New(slog.DiscardHandler))
		if err == nil {
			err = book.Serve(&scene{t: t, table: map[netip.Addr]session.Session{}},
				func(session.Session) (device, room Holder) { return "", "" })
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
			if most := accounted[n] + perSession; r.Bytes < accounted[n] || r.Bytes > most || len(r.Uses) > 0 {
				t.Errorf("killed after %d: device %d has used %d bytes of %d accounted, open are %+v", after, n, r.Bytes,
					accounted[n], r.Uses)
			}
			accounted[n] = r.Bytes
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

// killed has another process use the book, kills it after some ends, and adds to accounted what it answered.
func killed(t *testing.T, folder string, after int, accounted map[byte]uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), inChild+"="+folder)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text, ok := strings.CutPrefix(lines.Text(), "ended ")
		n, err := strconv.Atoi(text)
		if !ok || err != nil {
			continue
		}
		accounted[byte(n)] += perSession
		if seen++; seen == after {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if seen < after {
		t.Fatalf("only %d sessions ended", seen)
	}
}

// useDay begins and ends sessions of several devices of a room at once, and prints the device of each that was
// accounted.
func useDay(t *testing.T, folder string) {
	book, err := Open(folder, "", killTerms, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
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
				mu.Lock()
				fmt.Println("ended", n)
				mu.Unlock()
			}
		})
	}
	devices.Wait()
}
