package session

import (
	"context"
	"errors"
)

// Credentials are what a client shows to log in, unchecked: every byte may be
// an attacker's.
type Credentials struct {
	User, Password string
	Key            Key // of the client that asks
	// SessionID is the Acct-Session-Id that the session will have should it begin,
	// for servers that match logins with accounting (RFC 2866, 5.5); empty: not known.
	SessionID string
}

// Why a login failed. Whatever is neither of these says nothing about the
// credentials: the client may try again with the same ones.
var (
	// ErrRejected means that the credentials do not admit. The error that wraps
	// it may be a *Rejection.
	ErrRejected = errors.New("login rejected")
	// ErrBusy means that too many log in at once; nobody looked at the credentials.
	ErrBusy = errors.New("too many logins at once: try again in a few seconds")
)

// Rejection is an ErrRejected with what the user may be told.
type Rejection struct {
	// Message comes from whoever rejected; it is valid UTF-8 without control
	// characters other than newlines, and it is not HTML. It may be empty.
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

// Unwrap makes every Rejection an ErrRejected.
func (r *Rejection) Unwrap() error { return ErrRejected }

// RejectMessage is Message, for those who ask any error for it.
func (r *Rejection) RejectMessage() string { return r.Message }

// Gate lets a bounded number of callers work at a time and a bounded number
// wait, so that what a flood of logins can cost is known before it comes.
type Gate struct {
	inside  chan struct{} // holds one for each caller that works or waits
	working chan struct{} // holds one for each caller that works
}

// NewGate makes a gate; working is at least 1, waiting may be 0.
func NewGate(working, waiting int) *Gate {
	return &Gate{inside: make(chan struct{}, working+waiting), working: make(chan struct{}, working)}
}

// Enter returns nil once the caller may work: it then owes a Leave. It returns
// ErrBusy at once when too many wait already, and ctx's error when ctx ends first.
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

// Leave makes room for the next one.
func (g *Gate) Leave() {
	<-g.working
	<-g.inside
}
