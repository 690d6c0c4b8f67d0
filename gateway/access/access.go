// Package access asks an ordered list of sources who may pass: the users' file, RADIUS servers, or whatever else
// answers for users' passwords.
package access

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Suitability says whether a source can decide about a login, and whether it knows the user.
type Suitability int

const (
	CannotAnswer Suitability = iota // it cannot answer such a login
	MayKnow                         // it may know the user
	KnowsUser                       // it knows the user
)

// Source authenticates users: the users' file, or RADIUS servers.
type Source interface {
	Suitability(session.Credentials) Suitability
	// Authenticate returns the login of a right password. An error that wraps session.ErrRejected, as a *session.Rejection
	// does, says that the source does not let the user in; any other that it cannot say.
	Authenticate(context.Context, session.Credentials) (session.Login, error)
}

// Sources are asked in their order, but those that know the user first: a right password waits for no source that
// cannot know it. A wrong password is tried at all of them, so that the response time does not reveal which source
// knows a name.
type Sources []Source

// order is in which order sources are asked about a login.
func (s Sources) order(c session.Credentials) []Source {
	suits := map[Suitability][]Source{}
	for _, one := range s {
		suit := one.Suitability(c)
		suits[suit] = append(suits[suit], one)
	}
	return slices.Concat(suits[KnowsUser], suits[MayKnow])
}

// Authenticate chooses the session's ID, so that servers get it before the session begins, and returns the first
// source's login. If all sources reject, the user gets the message of the last that has one. If one source fails, a
// rejection by another is not final: the user is neither admitted nor answered that the password is wrong.
func (s Sources) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	var unsure, no error
	c.SessionID = session.NewID()
	for _, one := range s.order(c) {
		login, err := one.Authenticate(ctx, c)
		if err == nil {
			login.For = c.Key // only for this client, not for a later owner of the address
			login.SessionID = c.SessionID
			return login, nil
		}
		var rejected *session.Rejection
		if !errors.Is(err, session.ErrRejected) {
			unsure = err
		} else if errors.As(err, &rejected) && rejected.Message != "" || no == nil {
			no = err
		}
	}
	return session.Login{}, cmp.Or(unsure, no, session.Reject(""))
}

// Hashed is the source of local accounts. It stores hashes, so it knows its users but cannot answer a challenge (CHAP).
// It bounds its own time, by the number of passwords that are hashed at once: hashing takes longer on a slower or
// busier machine.
type Hashed struct {
	Accounts interface {
		Knows(user string) bool
		Authenticate(context.Context, session.Credentials) (session.Login, error)
	}
}

// Suitability implements Source.
func (h Hashed) Suitability(c session.Credentials) Suitability {
	switch {
	case c.CHAP != nil:
		return CannotAnswer
	case h.Accounts.Knows(c.User):
		return KnowsUser
	}
	return MayKnow
}

// Authenticate implements Source.
func (h Hashed) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	return h.Accounts.Authenticate(ctx, c)
}

// Remote is the source of RADIUS servers, which may know any user.
type Remote struct {
	Servers interface {
		Authenticate(context.Context, session.Credentials) (session.Login, error)
	}
	Limit time.Duration // of a login's wait for all servers together
}

// Suitability implements Source.
func (r Remote) Suitability(session.Credentials) Suitability { return MayKnow }

// Authenticate implements Source.
func (r Remote) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	return r.Servers.Authenticate(ctx, c)
}
