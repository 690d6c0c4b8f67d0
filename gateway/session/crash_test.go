// Tests of what is left after the gateway is killed, and of concurrent calls. child (file_test.go) is a process that
// can be killed. memory_test.go has the other helpers: newMemory is a data path in memory; key and keyOf make keys of
// clients; openTable opens a table in a file; lease gives a client a lease, admit logs it in, drain takes all pending
// events.

package session_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestKilledGatewayForgetsNothing repeatedly kills a process that logs clients in and out with 16 goroutines, and
// checks that everything it confirmed is in the file.
func TestKilledGatewayForgetsNothing(t *testing.T) {
	const variable = "GATEWEIGH_TEST_KILLED_STORE"
	if path := os.Getenv(variable); path != "" {
		logInAndOut(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "s.db")
	began, ended := map[string]bool{}, map[string]bool{} // sessions, by ID
	for round := range 5 {
		cmd := child(t, t.Name(), variable+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			label, id, told := strings.Cut(lines.Text(), " ")
			switch {
			case told && label == "began":
				began[id] = true
			case told && label == "ended":
				ended[id] = true
			}
			if n == 200+77*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || len(ended) == 0 {
			t.Fatalf("the child was not killed at work: %v, %d sessions ended", err, len(ended))
		}
		checkNothingForgotten(t, path, began, ended)
	}
}

// logInAndOut logs clients in and out for ever. It prints a line for each confirmed operation, in one write, so that no
// line is torn.
func logInAndOut(t *testing.T, path string) {
	table := openTable(t, path, newMemory())
	var users sync.WaitGroup
	for i := range 16 {
		users.Go(func() {
			k := keyOf(i)
			for {
				if err := table.Lease(k, "phone", time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
					return
				}
				s, err := table.Admit(k.Addr, session.Login{User: "ada"})
				fmt.Fprintf(os.Stdout, "began %s\n", s.ID)
				_, endErr := table.End(k.Addr, session.UserRequest)
				fmt.Fprintf(os.Stdout, "ended %s\n", s.ID)
				if err := errors.Join(err, endErr); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	users.Wait()
}

func checkNothingForgotten(t *testing.T, path string, began, ended map[string]bool) {
	t.Helper()
	table, err := session.Open(path, newMemory(), discardLog)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	alive := map[string]bool{}
	for s := range table.Each {
		alive[s.ID] = s.State == session.Authenticated
	}
	starts, ends := map[string]int{}, map[string]int{}
	for _, e := range drain(t, table) {
		if e.Kind == session.Started {
			starts[e.ID]++
		} else {
			ends[e.ID]++
		}
	}
	for id := range began {
		if starts[id] != 1 {
			t.Errorf("session %s, which had begun, has %d starts", id, starts[id])
		}
		if !alive[id] && ends[id] != 1 {
			t.Errorf("session %s is not there and has %d ends", id, ends[id])
		}
	}
	for id := range ended {
		if alive[id] || ends[id] != 1 {
			t.Errorf("session %s, which had ended: alive %v, %d ends", id, alive[id], ends[id])
		}
	}
	clear(began)
	clear(ended)
	for s := range table.Each { // otherwise the next round would end them
		if s.State == session.Authenticated {
			if _, err := table.End(s.Addr, session.AdminReset); err != nil {
				t.Error(err)
			}
		}
	}
	drain(t, table)
}

// TestConcurrentOperations runs all operations concurrently on few addresses, with the timers running, and checks the
// order of each session's events.
func TestConcurrentOperations(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	run(t, table)
	var users sync.WaitGroup
	for i := range byte(24) {
		users.Go(func() {
			k, alone := key(i%3, i%4), key6(i%3)
			for n := range 50 {
				var err error
				switch (n*7 + int(i)) % 10 {
				case 0, 1:
					err = table.Lease(k, "phone", time.Now().Add(time.Hour))
				case 2, 3:
					_, err = table.Admit(k.Addr, session.Login{User: "ada", Limits: session.Limits{UpBytes: 50, Interim: time.Second}})
				case 4:
					dp.send(k, 1, 100)
					_, err = table.End(k.Addr, session.UserRequest)
				case 5:
					err = table.Shown(k.Addr)
				case 6:
					err = table.Forget(k)
				case 7:
					for range table.Each {
					}
				case 8:
					err = table.Enter(alone)
				case 9:
					_, err = table.Admit(alone.Addr, session.Login{User: "ada"})
				}
				usual := []error{session.ErrUnknown, session.ErrNoSession, session.ErrTaken, session.ErrAddresses}
				if err != nil && !slices.ContainsFunc(usual, func(e error) bool { return errors.Is(err, e) }) {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	for i := range byte(12) {
		if err := errors.Join(table.Forget(key(i%3, i%4)), table.Forget(key6(i%3))); err != nil {
			t.Error(err)
		}
	}
	checkOrder(t, drain(t, table))
}

// checkOrder checks that each session has one start and one end, and updates in between.
func checkOrder(t *testing.T, events []session.Event) {
	t.Helper()
	order := map[string][]session.Kind{}
	for _, e := range events {
		order[e.ID] = append(order[e.ID], e.Kind)
	}
	if len(order) == 0 {
		t.Error("there was no session")
	}
	for id, kinds := range order {
		inner := slices.DeleteFunc(slices.Clone(kinds), func(k session.Kind) bool { return k == session.Updated })
		if !slices.Equal(inner, []session.Kind{session.Started, session.Ended}) || kinds[0] != session.Started ||
			kinds[len(kinds)-1] != session.Ended {
			t.Errorf("session %s: %v", id, kinds)
		}
	}
}

// TestConcurrentChangesAreBatched: a hundred concurrent logins cost the disk as much as one.
func TestConcurrentChangesAreBatched(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	const clients = 100
	for i := range clients {
		lease(t, table, keyOf(i))
	}
	resume, err := table.StopWriting()
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	for i := range clients {
		users.Go(func() {
			if _, err := table.Admit(keyOf(i).Addr, session.Login{}); err != nil {
				t.Error(err)
			}
		})
	}
	for table.Waiting() < clients {
		time.Sleep(time.Millisecond)
	}
	before, err := table.Transactions()
	if err := errors.Join(err, resume()); err != nil {
		t.Fatal(err)
	}
	users.Wait()
	after, err := table.Transactions()
	if err != nil || after-before > 2 {
		t.Errorf("%d transactions for %d logins (%v), want at most 2", after-before, clients, err)
	}
}

// TestLastConfirmationIsKept: Done is kept even when the table is closed while an earlier Done is being written.
func TestLastConfirmationIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, newMemory())
	lease(t, table, keyOf(0))
	admit(t, table, keyOf(0), session.Limits{})
	if _, err := table.End(keyOf(0).Addr, session.UserRequest); err != nil {
		t.Fatal(err)
	}
	resume, err := table.StopWriting()
	if err != nil {
		t.Fatal(err)
	}
	account(t, table)
	for table.Asked() { // until the writer has taken the first one and waits for the file
		time.Sleep(time.Millisecond)
	}
	account(t, table)
	closed := make(chan error)
	go func() { closed <- table.Close() }()
	for !table.Closing() {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(resume(), <-closed); err != nil {
		t.Fatal(err)
	}
	if n := openTable(t, path, newMemory()).Pending(); n != 0 {
		t.Errorf("%d accounted events are handed out again", n)
	}
}

// account marks the oldest event as accounted.
func account(t *testing.T, table *session.Table) {
	t.Helper()
	e, err := table.Next(t.Context())
	if err := errors.Join(err, table.Done(e)); err != nil {
		t.Fatal(err)
	}
}
