// Package guesses slows down who guesses passwords, whatever the way in: wrong passwords are counted by the client's
// MAC address, by the user's name, and by the line that an access node names; wrong voucher codes by the MAC address,
// and all of them together; wrong names of a room's guests as these, and by the room.
//
// Nobody is locked out by mistyping, and no client's wrong passwords lock out another: a wait is for the guesser's
// device, and for a name it is short and not for the device where the user last logged in. Codes have no name: somebody
// with 150 MAC addresses can keep all codes waiting.
//
// Gateways that share a store count together (Guard.Share):
//
//	failure ──▶ own counters ──▶ own record ──▶ store ──▶ other gateways ──▶ their counters
package guesses

import (
	"context"
	"time"
)

// MAC is a client's hardware address.
type MAC = [6]byte

// Guard slows down the guessing of passwords: it counts wrong ones by client, by user's name and by access line, and
// tells how long to wait. The zero value is ready to use, by several goroutines.
type Guard struct {
	clients     attempts
	names       names
	accessLines accessLines
	codes       Codes
	rooms       names // wrong names of a room's guests
	sharing     *sharing

	// Codes counts the wrong codes of several guards together; nil: those of this one alone.
	Codes *Codes
	// NoHome has waits for a name hold for the client of its last login too.
	NoHome bool
}

// Attempter is a client that wants to log in.
type Attempter struct {
	MAC MAC
	// AccessLine is the subscriber's line as its access node names it; empty: unknown. Made-up MAC addresses
	// behind one line have its allowance together.
	AccessLine string
}

// Try is a client's right to try one password, until Leave.
type Try struct {
	guard     *Guard
	attempter Attempter
	*turn
}

// Enter waits until a client may try: one password at a time, because parallel guesses would be decided
// before they are counted. The error is ctx's.
func (g *Guard) Enter(ctx context.Context, identity Attempter) (*Try, error) {
	t, err := g.clients.waitTurn(ctx, identity.MAC)
	if err != nil {
		return nil, err
	}
	return &Try{g, identity, t}, nil
}

// nobody is the address of no client.
var nobody = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// home is the address that may be that of a name's last login.
func (t *Try) home() MAC {
	if t.guard.NoHome {
		return nobody
	}
	return t.attempter.MAC
}

// Leave ends the right.
func (t *Try) Leave() { t.end() }

// Wait is how long the client must wait before it may try a password of a user; 0: it may try now. For user "" it
// considers the client alone.
func (t *Try) Wait(user string) time.Duration {
	wait := t.wait()
	if user != "" && !t.guard.names.isHome(user, t.home()) {
		wait = max(wait, t.guard.names.wait(user, t.home()), t.guard.accessLines.wait(t.attempter.AccessLine))
	}
	return wait
}

// Failures are the wrong passwords of the client and for the name that still count. Where logins have to
// wait, those without failures go first.
func (t *Try) Failures(user string) int {
	return t.recent() + t.guard.names.recent(user, t.home())
}

// Wrong counts a wrong password. One by a client that has to wait already does not count for its access line.
func (t *Try) Wrong(user string) {
	t.fail()
	t.guard.sharing.count(t.guard.names.countWrong(user, t.home()), 1)
	if t.recent() <= freeFailures {
		t.guard.sharing.count(t.guard.accessLines.countWrong(t.attempter.AccessLine), 1)
	}
}

// WrongName counts a failed attempt that was no password of a user, such as a wrong name.
func (t *Try) WrongName() { t.fail() }

// Right clears the failures of the client and the user after a login.
func (t *Try) Right(user string) {
	t.succeeded()
	t.guard.sharing.clear(t.guard.names.clearFailures(user, t.attempter.MAC))
	t.guard.sharing.clear(t.guard.accessLines.forgetFailures(t.attempter.AccessLine))
}

// fail counts a failure of the client.
func (t *Try) fail() {
	t.turn.fail()
	t.guard.sharing.count(deviceKey(t.client), 1)
}

// succeeded forgets the client's failures.
func (t *Try) succeeded() {
	if t.turn.succeeded() {
		t.guard.sharing.clear(deviceKey(t.client))
	}
}

// forgive forgets so many of the client's failures.
func (t *Try) forgive(n int) {
	t.turn.forgive(n)
	t.guard.sharing.count(deviceKey(t.client), -n)
}

// Trying is the number of a client's logins that are being decided, or wait for that.
func (g *Guard) Trying(client MAC) int {
	g.clients.mu.Lock()
	defer g.clients.mu.Unlock()
	if entry := g.clients.clients[client]; entry != nil {
		return entry.users
	}
	return 0
}
