package session

import (
	"context"
	"errors"
)

// Credentials are what a client presents to log in. They are unchecked: an attacker
// may have chosen every byte.
type Credentials struct {
	User, Password string
	Key            Key // of the client that logs in
	// SessionID is the Acct-Session-Id of the session if the login succeeds, so that
	// servers can match logins with accounting (RFC 2866, 5.5); empty: not known.
	SessionID string
}

// Reasons for a failed login. Any other error says nothing about the credentials:
// the client may try again with the same ones.
var (
	// ErrRejected means that the credentials are wrong or not allowed. The error that
	// wraps it may be a *Rejection.
	ErrRejected = errors.New("login rejected")
	// ErrBusy means that too many clients log in at once; the credentials were not checked.
	ErrBusy = errors.New("too many logins at once: try again in a few seconds")
)

// Rejection is an ErrRejected with a message for the user.
type Rejection struct {
	// Message comes from the server that rejected the login. It is valid UTF-8 without
	// control characters other than newlines, and it is not HTML. It may be empty.
	Message string
}

// Reject returns a Rejection.
func Reject(message string) error { return &Rejection{Message: message} }

func (r *Rejection) Error() string {
	if r.Message == "" {
		return ErrRejected.Error()
	}
	return ErrRejected.Error() + ": " + r.Message
}

// Unwrap lets errors.Is match ErrRejected.
func (r *Rejection) Unwrap() error { return ErrRejected }

// RejectMessage returns Message, for callers that know only this interface.
func (r *Rejection) RejectMessage() string { return r.Message }

// Gate lets a bounded number of callers work at a time and a bounded number wait,
// which bounds the cost of a flood of logins.
type Gate struct {
	inside  chan struct{} // holds one for each caller that works or waits
	working chan struct{} // holds one for each caller that works
}

// NewGate makes a gate; working is at least 1, waiting may be 0.
func NewGate(working, waiting int) *Gate {
	return &Gate{inside: make(chan struct{}, working+waiting), working: make(chan struct{}, working)}
}

// Enter returns nil when the caller may work; the caller must then call Leave. It
// returns ErrBusy at once when too many wait already, and ctx's error when ctx ends first.
func (g *Gate) Enter(ctx context.Context) error {
	select {
	case g.inside <- struct{}{}:
	default:
		return ErrBusy
	}
	select {
	case g.working <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-g.inside
		return ctx.Err()
	}
}

// Leave ends the work that Enter admitted.
func (g *Gate) Leave() {
	<-g.working
	<-g.inside
}
