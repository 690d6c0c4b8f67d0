// Package users checks passwords against a file of local accounts.
//
// # File
//
// One account a line: its name, the password's hash as `gatewayd hash-password`
// prints it, and what limits it, if anything:
//
//	# guests of the house
//	alice:$argon2id$v=19$m=65536,t=3,p=4$c2FsdA…$aGFzaA…
//	room12:$argon2id$v=19$…:session_timeout=8h,idle_timeout=20m,up_bps=5M,down_bps=20M,total_bytes=10G
//
// Times are durations such as 90m or 8h. Rates are bits, sizes bytes, with k, M,
// G or T for powers of 1000. What is not named does not limit. Blank lines and
// lines that begin with # are nothing. A name has no colon and no control
// characters, and is at most 253 bytes.
//
// The file is read again when it has changed. Nobody but its owner and its group
// may have access to it, and only its owner may write it.
//
// # Cost
//
// Hashes are argon2id with the second recommended parameters of RFC 9106, 4: 64
// MiB of memory and about 0.16 s of a core. All accounts have the same, and an
// unknown name is hashed like a known one, so the time an answer takes tells
// nobody which names exist. One password is hashed at a time, in four lanes that
// may fill four cores, and a bounded number wait: the rest are turned away with
// session.ErrBusy before they cost anything. With what Go's collector leaves
// lying, a flood of logins takes 140 MB.
package users

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	hashedAtOnce = 1  // two would be no faster on up to four cores, and take twice the memory
	waiting      = 64 // some 5 s of hashing on two cores
	maxPassword  = 1024
)

// Accounts are the accounts of a file. Its methods may be called from several
// goroutines.
type Accounts struct {
	path string
	log  *slog.Logger
	gate *session.Gate

	mu     sync.Mutex
	byName map[string]account // guarded by mu; a map is never changed once it is here
	// seen is of the file as it was read last, settled that no change can have
	// hidden behind it. Guarded by mu.
	seen    stamp
	settled bool
}

// Open reads a file of accounts. Errors name the file and the line. Later
// changes that cannot be read are told to log, and the accounts stay as they
// were until the file is right again.
func Open(path string, log *slog.Logger) (*Accounts, error) {
	byName, seen, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return &Accounts{
		path: path, log: log, gate: session.NewGate(hashedAtOnce, waiting),
		byName: byName, seen: seen,
	}, nil
}

// Authenticate checks a name and password and returns what the account is
// granted. Errors are session.ErrRejected, session.ErrBusy, or ctx's.
func (a *Accounts) Authenticate(ctx context.Context, who session.Credentials) (session.Login, error) {
	if len(who.User) > maxName || len(who.Password) > maxPassword || !utf8.ValidString(who.User) {
		return session.Login{}, session.Reject("") // no account can have these
	}
	if err := a.gate.Enter(ctx); err != nil {
		return session.Login{}, fmt.Errorf("users: %w", err)
	}
	defer a.gate.Leave()
	acc, known := a.current()[who.User]
	if !known {
		acc.hash = nobody
	}
	if right := acc.hash.matches(who.Password); !known || !right {
		return session.Login{}, session.Reject("")
	}
	return session.Login{User: who.User, Limits: acc.limits}, nil
}

// current returns the accounts as the file has them now.
func (a *Accounts) current() map[string]account {
	a.mu.Lock()
	defer a.mu.Unlock()
	if info, err := os.Stat(a.path); err == nil && stampOf(info) == a.seen && a.settled {
		return a.byName
	}
	byName, seen, err := load(a.path)
	// A change in the same tick of the file system's clock as the one just read
	// would look like it: so a file that was touched a moment ago is read again.
	a.settled = time.Since(seen.changed()) > time.Second
	switch {
	case err != nil:
		if seen != a.seen { // said once of each state of the file
			a.log.Error("local accounts stay as they were read before", "error", err)
		}
	default:
		if seen != a.seen {
			a.log.Info("local accounts read", "file", a.path, "accounts", len(byName))
		}
		a.byName = byName
	}
	a.seen = seen
	return a.byName
}
