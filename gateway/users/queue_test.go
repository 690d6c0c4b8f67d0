// Tests of the queue of logins that wait for their password to be hashed. In a steppedQueue the test ends each turn.

package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// The queue hashes one password at a time, and each hashing is a turn. These tests check in which turn a login is
// answered.

// steppedQueue is a queue whose turns end only when the test ends them. Instead of hashing a password it compares it
// with the account's tag.
type steppedQueue struct {
	queue
	turn chan struct{}
}

// newStepped makes a queue of at most most logins, each of which may wait for patience turns.
func newStepped(most, patience int) *steppedQueue {
	s := &steppedQueue{turn: make(chan struct{})}
	s.queue = queue{maxLogins: most, maxTurns: patience, matches: func(h hash, password string) bool {
		<-s.turn
		return string(h.tag) == password
	}}
	return s
}

// end ends n turns.
func (s *steppedQueue) end(n int) {
	for range n {
		synctest.Wait()
		s.turn <- struct{}{}
	}
	synctest.Wait()
}

// testLogin is a login from a device. failures is the number of wrong passwords before it. With account its name has an
// account, whose password is "right". err gets the answer.
type testLogin struct {
	name, password string
	device         byte
	failures       int
	account        bool
	err            chan error
}

// begin puts a login into the queue.
func (s *steppedQueue) begin(ctx context.Context, l testLogin) testLogin {
	l.err = make(chan error, 1)
	credentials := session.Credentials{
		User: l.name, Password: l.password, Key: session.Key{MAC: [6]byte{2, 0, 0, 0, 0, l.device}}, Failures: l.failures}
	go func() { l.err <- s.check(ctx, credentials, l.account, hash{tag: []byte("right")}) }()
	synctest.Wait()
	return l
}

// is checks whether a login is answered already, and how. want nil: the password was right.
func (l testLogin) is(t *testing.T, answered bool, want error) {
	t.Helper()
	select {
	case err := <-l.err:
		if !answered || !errors.Is(err, want) {
			t.Errorf("%s from device %d is answered %v", l.name, l.device, err)
		}
	default:
		if answered {
			t.Errorf("%s from device %d is not answered", l.name, l.device)
		}
	}
}

// TestMadeUpNamesDelayNobody: while the first logins of 100 devices with 100 made-up names wait, a right password is
// answered in the turn after the one in progress.
func TestMadeUpNamesDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := newStepped(1024, 300)
		for i := range byte(100) {
			s.begin(ctx, testLogin{name: fmt.Sprint("made-up", i), password: "x", device: i + 1})
		}
		right := s.begin(ctx, testLogin{name: "ann", password: "right", device: 200, account: true})
		s.end(1)
		right.is(t, false, nil)
		s.end(1)
		right.is(t, true, nil)
		stop()
		s.end(1)
	})
}

// TestAnswersDoNotTellNames: a wrong password for a name with an account and one for a name without are answered after
// the same number of turns and of hashed passwords, wherever they are in the queue.
func TestAnswersDoNotTellNames(t *testing.T) {
	after := func(account bool, ahead, behind string) (turns int) {
		synctest.Test(t, func(t *testing.T) {
			s := newStepped(1024, 300)
			joins := func(name string, first byte) {
				for i, kind := range name {
					s.begin(t.Context(),
						testLogin{name: fmt.Sprint(kind, first, i), password: "wrong", device: first + byte(i), account: kind == 'a'})
				}
			}
			joins(ahead, 1)
			probe := s.begin(t.Context(), testLogin{name: "probe", password: "wrong", device: 250, account: account})
			joins(behind, 100)
			for ; len(probe.err) == 0; turns++ {
				s.end(1)
			}
			probe.is(t, true, session.ErrRejected)
			s.end(len(ahead+behind) + 1 - turns)
			if len(s.line) > 0 || s.turnsBegun != uint64(len(ahead+behind)+1) {
				t.Errorf("%d turns for %d logins, %d wait", s.turnsBegun, len(ahead+behind)+1, len(s.line))
			}
		})
		return turns
	}
	for _, line := range [][2]string{
		{"", ""}, {"nnnn", ""}, {"aaaa", ""}, {"nana", "nana"}, {"n", "aaaaaa"}, {"a", "nnnnnn"}, {"nnnn", "aaaa"}} {
		with, without := after(true, line[0], line[1]), after(false, line[0], line[1])
		if with != len(line[0])+1 || without != with {
			t.Errorf("behind %q and before %q: a wrong password of an account is answered after %d turns, of a made-up name "+
				"after %d; want %d",
				line[0], line[1], with, without, len(line[0])+1)
		}
	}
}

// TestQueueOrder: logins without wrong passwords before them go first. Among these, each name and each device goes once
// before one of them goes a second time.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(1024, 300)
		s.begin(t.Context(), testLogin{name: "in progress", password: "x", device: 99})
		var order []string
		s.matches = func(_ hash, password string) bool {
			<-s.turn
			order = append(order, password)
			return false
		}
		for _, l := range []testLogin{
			{name: "ann", device: 1, failures: 2, password: "guessed name"},
			{name: "ben", device: 2, password: "1"}, {name: "ben", device: 3, password: "same name"},
			{name: "cid", device: 2, password: "same device"},
			{name: "dan", device: 4, password: "2"}, {name: "ben", device: 2, password: "same name and device"},
			{name: "eve", device: 5, password: "3"},
		} {
			l.account = true
			s.begin(t.Context(), l)
		}
		s.end(8)
		want := []string{"1", "2", "3", "same name", "same device", "same name and device", "guessed name"}
		if !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
	})
}

// TestQueueIsBounded: a full queue rejects the login of the lowest rank, and a login whose client gives up leaves the
// queue.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(3, 300)
		ctx, leave := context.WithCancel(t.Context())
		gone := s.begin(ctx, testLogin{name: "gone", password: "x", device: 1})
		guesser := s.begin(t.Context(), testLogin{name: "guesser", password: "x", device: 2, failures: 5})
		first := s.begin(t.Context(), testLogin{name: "first", password: "x", device: 3})
		s.begin(t.Context(), testLogin{name: "worse", password: "x", device: 4, failures: 5}).is(t, true, session.ErrBusy)
		fresh := s.begin(t.Context(), testLogin{name: "fresh", password: "right", device: 5, account: true})
		guesser.is(t, true, session.ErrBusy)
		leave()
		synctest.Wait()
		gone.is(t, true, context.Canceled)
		late := s.begin(t.Context(), testLogin{name: "late", password: "right", device: 6, account: true, failures: 9})
		s.end(1) // began for the one that has gone
		fresh.is(t, false, nil)
		s.end(1)
		fresh.is(t, true, nil)
		late.is(t, false, nil)
		s.end(1)
		late.is(t, true, nil)
		first.is(t, false, nil)
		s.end(1)
		first.is(t, true, session.ErrRejected)
	})
}

// TestMaxTurns: a login with many wrong passwords before it, which others always overtake, is rejected after maxTurns
// turns.
func TestMaxTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 10
		s := newStepped(1024, patience)
		s.begin(t.Context(), testLogin{name: "first", password: "x", device: 1})
		late := s.begin(t.Context(), testLogin{name: "late", password: "x", device: 2, failures: 9})
		for i := range byte(patience + 1) { // the first turn had begun
			late.is(t, false, nil)
			s.begin(t.Context(), testLogin{name: fmt.Sprint("better", i), password: "x", device: 10 + i})
			s.end(1)
		}
		late.is(t, true, session.ErrBusy)
		s.end(len(s.line))
	})
}

// TestDisplacedWhileHashed: a login that loses its place while its password is hashed, and whose client does not read
// the answer, does not block the queue.
func TestDisplacedWhileHashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(1, 10)
		right := hash{tag: []byte("right")}
		// nobody reads the answer
		gone := &waiting{failures: 1, account: true, hash: right, password: "right", answer: make(chan error, 1)}
		if !s.add(gone) {
			t.Fatal("an empty line is full")
		}
		synctest.Wait() // until its password is hashed
		better := s.begin(t.Context(), testLogin{name: "ann", password: "right", account: true})
		close(s.turn)
		if err := <-better.err; err != nil { // waiting for ever is a deadlock of the bubble
			t.Error(err)
		}
	})
}
