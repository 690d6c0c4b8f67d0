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
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

const (
	maxWaiting  = 1024 // most waiting logins
	maxTurns    = 300  // most turns that a login waits: about 30 s on two cores
	maxPassword = 1024
)

// Accounts are the accounts of a file. Its methods may be called from several goroutines.
type Accounts struct {
	path string
	log  *slog.Logger
	line queue

	mu     sync.Mutex
	byName map[string]account // guarded by mu; a map is never changed once it is stored here
	// fileStamp is the stamp of the file that was last read. settled means that a later change must have another stamp.
	// Guarded by mu.
	fileStamp fileStamp
	settled   bool
	problem   error // why the present file could not be read, so that byName is older; nil: it was read. Guarded by mu.
	// verified has the fingerprints of passwords that were right, by the account's name. Guarded by mu.
	verified map[string][sha256.Size]byte
	key      []byte
}

// Open reads a file of accounts. Errors name the file and the line. Later changes that cannot be read are logged, and
// the accounts stay as they were until the file is valid again.
func Open(path string, log *slog.Logger) (*Accounts, error) {
	byName, seen, err := load(path)
	if err != nil {
		return nil, err
	}
	return &Accounts{
		path: path, log: log, line: queue{maxLogins: maxWaiting, maxTurns: maxTurns, matches: hash.matches},
		byName: byName, fileStamp: seen, verified: map[string][sha256.Size]byte{}, key: random(sha256.Size),
	}, nil
}

// Authenticate checks a name and password and returns the account's limits. Errors are session.ErrRejected,
// session.ErrBusy, or ctx's.
func (a *Accounts) Authenticate(ctx context.Context, credentials session.Credentials) (session.Login, error) {
	if len(credentials.User) > maxName || len(credentials.Password) > maxPassword || !utf8.ValidString(credentials.User) {
		return session.Login{}, fmt.Errorf("users: %w: no account can have such a name or password", session.Reject(""))
	}
	acc, known := a.current()[credentials.User]
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
}

// State returns the state of the accounts. It reads the file if it has changed.
func (a *Accounts) State() State {
	all := a.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{len(all), a.problem}
}

// followEvery is the interval at which Follow checks the file.
const followEvery = time.Second

// Follow reads the file whenever it has changed, until ctx ends. So the log names a mistake in the file before the next
// login.
func (a *Accounts) Follow(ctx context.Context) error {
	again := ticker.Every(followEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			a.current()
		}
	}
}

// Knows reports whether a name has an account.
func (a *Accounts) Knows(user string) bool {
	_, known := a.current()[user]
	return known
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

// current returns the accounts of the present file, or if that cannot be read, those of the last readable one.
func (a *Accounts) current() map[string]account {
	a.mu.Lock()
	defer a.mu.Unlock()
	if info, err := os.Stat(a.path); err == nil && stampOf(info) == a.fileStamp && a.settled {
		return a.byName
	}
	byName, seen, err := load(a.path)
	// A change within the same tick of the file system's clock has the same stamp, so a file that changed less than a
	// second ago is read again.
	a.settled = time.Since(seen.changed()) > time.Second
	a.problem = err
	switch {
	case err != nil:
		if seen != a.fileStamp { // logged once for each state of the file
			a.log.Error("local accounts stay as they were read before", "error", err)
		}
	default:
		if seen != a.fileStamp {
			a.log.Info("local accounts read", "file", a.path, "accounts", len(byName))
		}
		a.byName = byName
		maps.DeleteFunc(a.verified, func(name string, _ [sha256.Size]byte) bool {
			_, found := byName[name]
			return !found
		})
	}
	a.fileStamp = seen
	return a.byName
}
