// Package users checks passwords against a file of local accounts.
//
// # File
//
// One account a line: its name, the password's hash as `gatewayd hash-password` prints it, and optional limits:
//
//	# guests of the house
//	alice:$argon2id$v=19$m=65536,t=3,p=4$c2FsdA…$aGFzaA…
//	room12:$argon2id$v=19$…:session_timeout=8h,idle_timeout=20m,up_rate=5M,down_rate=20M,total_quota=10GB
//
// The limits have the names and units of the configuration's [limits], whose values hold where a line has none. Blank
// lines and lines that begin with # are ignored. A name has no colon and no control characters, and is at most 253
// bytes.
//
// The file is read again when it has changed. It must belong to root or to the daemon's user. Only its
// owner and its group may have access to it, and only its owner may write it.
//
// # Cost
//
// Hashes are argon2id with the second recommended parameters of RFC 9106, 4: 64 MiB of memory and about 0.16 s of a
// core. All accounts have the same parameters. One password is hashed at a time, in four lanes that may fill four
// cores; see queue for the order, and for why the response time does not reveal which names exist. Where too many
// logins wait, some get session.ErrBusy. With garbage that Go's collector has not freed yet, a flood of logins takes
// 140 MB.
//
// A password that was right once is recognised by a keyed hash in memory, which takes no time: returning users do not
// wait behind a flood. Neither key nor hash is written to disk, and both are of no use without the daemon's memory.
package users

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	maxWaiting  = 1024 // most waiting logins
	maxTurns    = 300  // most turns that a login waits: about 30 s on two cores
	maxPassword = 1024
)

// Accounts are the accounts of a file. Its methods may be called from several goroutines.
type Accounts struct {
	file *listfile.File[account]
	line queue

	changed func() // see OnChange

	mu sync.Mutex
	// verified has the fingerprints of passwords that were right, by the account's name. Guarded by mu.
	verified map[string][sha256.Size]byte
	key      []byte
}

// Open reads a file of accounts. Errors name the file and the line. Later changes that cannot be read are logged, and
// the accounts stay as they were until the file is valid again.
func Open(path string, log *slog.Logger) (*Accounts, error) {
	return openFile(path, kind, log, parseLine)
}

// openFile is Open for a kind of file.
func openFile(path string, kind listfile.Kind, log *slog.Logger,
	line func(string) (string, account, error)) (*Accounts, error) {
	file, err := listfile.Open(path, kind, log, line)
	if err != nil {
		return nil, err
	}
	a := &Accounts{
		file: file, line: queue{maxLogins: maxWaiting, maxTurns: maxTurns, matches: hash.matches},
		verified: map[string][sha256.Size]byte{}, key: random(sha256.Size),
	}
	file.OnChange(a.forget)
	return a, nil
}

// Authenticate checks a name and password and returns the account's limits. Errors are session.ErrRejected,
// session.ErrBusy, or ctx's.
func (a *Accounts) Authenticate(ctx context.Context, credentials session.Credentials) (session.Login, error) {
	if len(credentials.User) > maxName || len(credentials.Password) > maxPassword || !utf8.ValidString(credentials.User) {
		return session.Login{}, fmt.Errorf("users: %w: no account can have such a name or password", session.Reject(""))
	}
	acc, known := a.file.Entries()[credentials.User]
	known = known && acc.hash.tag != nil
	sum := a.fingerprint(credentials, acc.hash)
	if known && a.isVerified(credentials.User, sum) {
		return session.Login{User: credentials.User, Limits: acc.limits, Sessions: acc.sessions}, nil
	}
	switch err := a.line.check(ctx, credentials, known, acc.hash); {
	case errors.Is(err, session.ErrRejected) && !known: // only the log tells the two cases apart, not the user
		return session.Login{}, fmt.Errorf("users: %w: there is no such account", err)
	case errors.Is(err, session.ErrRejected):
		return session.Login{}, fmt.Errorf("users: %w: wrong password", err)
	case err != nil:
		return session.Login{}, fmt.Errorf("users: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verified[credentials.User] = sum
	return session.Login{User: credentials.User, Limits: acc.limits, Sessions: acc.sessions}, nil
}

// State describes the accounts.
type State struct {
	Number  int   // number of accounts
	Problem error // why the present file could not be read, so that the accounts are older; nil: it was read
	// Counted: an account has a limit of connections.
	Counted bool
}

// State returns the state of the accounts. It reads the file if it has changed.
func (a *Accounts) State() State {
	s := State{Number: len(a.file.Entries()), Problem: a.file.Problem()}
	for _, account := range a.file.Entries() {
		s.Counted = s.Counted || account.limits.Connections > 0
	}
	return s
}

// Follow reads the file whenever it has changed, until ctx ends. So the log names a mistake in the file before the next
// login.
func (a *Accounts) Follow(ctx context.Context) error { return a.file.Follow(ctx) }

// Knows reports whether a name has an account.
func (a *Accounts) Knows(user string) bool {
	_, known := a.file.Entries()[user]
	return known
}

// Recall returns the login of an account whose password was right before, and a mark of that password: another password
// has another mark.
func (a *Accounts) Recall(user string) (login session.Login, mark string, known bool) {
	acc, known := a.file.Entries()[user]
	if !known {
		return session.Login{}, "", false
	}
	sum := sha256.Sum256(append(append([]byte("gatewayd recall"), acc.hash.salt...), acc.hash.tag...))
	return session.Login{User: user, Limits: acc.limits, Sessions: acc.sessions}, hex.EncodeToString(sum[:16]), true
}

// fingerprint returns a keyed hash of name, password and the account's stored hash. The key exists only in this
// process.
func (a *Accounts) fingerprint(credentials session.Credentials, h hash) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, a.key)
	for _, part := range [][]byte{[]byte(credentials.User), []byte(credentials.Password), h.salt, h.tag} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write(part)
	}
	mac.Sum(sum[:0])
	return sum
}

// isVerified reports whether the account has logged in with this password before.
func (a *Accounts) isVerified(user string, sum [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, found := a.verified[user]
	return found && hmac.Equal(before[:], sum[:])
}

// OnChange has f called after each change of the file. f must not call the Accounts. OnChange must be called before the
// Accounts are used.
func (a *Accounts) OnChange(f func()) { a.changed = f }

// forget removes the fingerprints of accounts that are gone.
func (a *Accounts) forget(byName map[string]account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.verified, func(name string, _ [sha256.Size]byte) bool {
		_, found := byName[name]
		return !found
	})
	if a.changed != nil {
		a.changed()
	}
}
