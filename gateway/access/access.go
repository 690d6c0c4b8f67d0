// Package access decides whether a user may log in. It asks an ordered list of sources, such as the users' file and
// RADIUS servers, whether the password is right.
package access

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Suitability tells whether a source can decide about a login, and whether it knows the user.
type Suitability int

const (
	CannotAnswer Suitability = iota // it cannot answer such a login
	MayKnow                         // it may know the user
	KnowsUser                       // it knows the user
)

// Source authenticates users: the users' file, or RADIUS servers.
type Source interface {
	Suitability(session.Credentials) Suitability
	// Authenticate returns the login for a right password. An error that wraps session.ErrRejected, as a
	// *session.Rejection does, means that the source rejects the login. Any other error means that the source cannot
	// decide.
	Authenticate(context.Context, session.Credentials) (session.Login, error)
}

// Sources are asked in their order, except that those that know the user come first, so that a right password need not
// wait for the others. A wrong password is tried at all of them, so that the response time does not reveal which source
// knows a name.
type Sources []Source

// order returns the sources that can decide about a login, in the order in which they are asked.
func (s Sources) order(c session.Credentials) []Source {
	bySuitability := map[Suitability][]Source{}
	for _, source := range s {
		suitability := source.Suitability(c)
		bySuitability[suitability] = append(bySuitability[suitability], source)
	}
	return slices.Concat(bySuitability[KnowsUser], bySuitability[MayKnow])
}

// Authenticate returns the login of the first source that accepts the password. It chooses the session's ID beforehand,
// unless the caller did, because servers get it with the question. If all sources reject the login, the error has the
// message of the last one that gave a message. If a source could not decide, its error is returned even though others
// rejected the login, so that the user is not told that the password is wrong.
func (s Sources) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	var undecided, rejection error
	if c.SessionID == "" {
		c.SessionID = session.NewID()
	}
	for _, source := range s.order(c) {
		login, err := source.Authenticate(ctx, c)
		if err == nil {
			login.For = c.Key // for this client only, not for a later one with the same address
			login.SessionID = c.SessionID
			return login, nil
		}
		var rejected *session.Rejection
		if !errors.Is(err, session.ErrRejected) {
			undecided = err
		} else if errors.As(err, &rejected) && rejected.Message != "" || rejection == nil {
			rejection = err
		}
	}
	return session.Login{}, cmp.Or(undecided, rejection, session.Reject(""))
}

// Hashed is the source of local accounts. It stores hashes of passwords, so it knows its users, but cannot check a
// response to a challenge (CHAP). It has no time limit, because hashing takes longer on a slower or busier machine; the
// accounts limit how many passwords are hashed at the same time instead.
type Hashed struct {
	Accounts interface {
		Knows(user string) bool
		Authenticate(context.Context, session.Credentials) (session.Login, error)
	}
}

// Suitability implements Source.
func (h Hashed) Suitability(c session.Credentials) Suitability {
	switch {
	case c.CHAP != nil, c.Code != "":
		return CannotAnswer
	case h.Accounts.Knows(c.User):
		return KnowsUser
	}
	return MayKnow
}

// Authenticate implements Source.
func (h Hashed) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	login, err := h.Accounts.Authenticate(ctx, c)
	login.Local = true
	return login, err
}

// Remote is the source of RADIUS servers, which may know any user.
type Remote struct {
	Servers interface {
		Authenticate(context.Context, session.Credentials) (session.Login, error)
	}
	Limit time.Duration // the longest time of a login at all servers together
}

// Suitability implements Source.
func (r Remote) Suitability(c session.Credentials) Suitability {
	if c.Code != "" {
		return CannotAnswer
	}
	return MayKnow
}

// Authenticate implements Source.
func (r Remote) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	return r.Servers.Authenticate(ctx, c)
}

// Vouchers is the source of vouchers, which alone knows their codes.
type Vouchers struct {
	Book interface {
		Login(code string) (session.Login, error)
	}
}

// Suitability implements Source.
func (v Vouchers) Suitability(c session.Credentials) Suitability {
	if c.Code == "" {
		return CannotAnswer
	}
	return KnowsUser
}

// Authenticate implements Source.
func (v Vouchers) Authenticate(_ context.Context, c session.Credentials) (session.Login, error) {
	login, err := v.Book.Login(c.Code)
	if err != nil {
		return session.Login{}, err
	}
	return login, nil
}
