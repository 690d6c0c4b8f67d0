package session

import (
	"errors"
	"net/netip"
)

// Credentials are a client's proof of who it is, at a login. They are unchecked: an attacker
// may have chosen every byte.
type Credentials struct {
	User, Password string
	// Code is a voucher's, as typed, instead of User and Password; empty: there is none.
	Code string
	// CHAP is an answer to a challenge, instead of Password; nil: there is none.
	CHAP *CHAP
	Key  Key // of the client that logs in; over PPPoE it has no address yet
	// FurtherAddrs are the addresses that the client has beside the first one, as Session's.
	FurtherAddrs []netip.Addr
	// CallCheck means that a device asks without a person: User and Password are made of its MAC address.
	CallCheck bool
	// Port is the PPPoE session in which the client logs in; zero: it is on Ethernet. Circuit and Remote are what an
	// access node or a relay says of its line.
	Port            uint16
	Circuit, Remote string
	VLANs           VLANs // that it is in
	// SessionID is the Acct-Session-Id of the session if the login succeeds, so that
	// servers can match logins with accounting (RFC 2866, 5.5); empty: not known.
	SessionID string
	// Failures are the wrong passwords that were sent lately, by the client and for the
	// name. Where logins have to wait, those without failures go first.
	Failures int
}

// CHAP is a client's answer to a challenge.
type CHAP struct {
	Microsoft bool // MS-CHAPv2 (RFC 2759): Response is its 49 bytes; otherwise MD5's 16 (RFC 1994)
	ID        uint8
	Challenge []byte
	Response  []byte
}

// Reasons for a failed login. Any other error says nothing about the credentials:
// the client may try again with the same ones.
var (
	// ErrRejected means that the credentials are wrong or not allowed. The error that
	// wraps it may be a *Rejection.
	ErrRejected = errors.New("login rejected")
	// ErrUnfit means that a server accepted the credentials with terms that this gateway cannot carry out:
	// they are right, and of no use here. The error that wraps it says which terms.
	ErrUnfit = errors.New("accepted, but on terms that this gateway cannot carry out")
	// ErrMoreAsked means that the server asks for more than a password. It is wrapped by a *Challenge.
	ErrMoreAsked = errors.New(
		"the server asks for more than a password (Access-Challenge), which a client here cannot give")
	// ErrBusy means that too many clients log in at once; the credentials were not checked.
	ErrBusy = errors.New("too many logins at once: try again in a few seconds")
	// ErrTryAgain means that the credentials may be right, and what they allow is not known now.
	ErrTryAgain = errors.New("it cannot be decided now: try again later")
)

// Rejection is an ErrRejected with a message for the user.
type Rejection struct {
	// Message comes from the server that rejected the login. It is valid UTF-8 without
	// control characters other than newlines, and it is not HTML. It may be empty.
	Message string
	// Reason says why nobody comes in although the code of a voucher, or what a guest says, is right; empty: the
	// credentials are wrong, or not allowed.
	Reason Reason
}

// Reason is why a voucher, or a click, admits nobody.
type Reason string

const (
	Expired Reason = "expired" // its time since the first use, or its date, is over
	UsedUp  Reason = "used-up" // its time online, or its data
	Revoked Reason = "revoked" // by the operator

	UsedToday Reason = "used-today" // no voucher's: the day's time or data of a device or a room
)

// Challenge is an ErrMoreAsked with the server's question, which is as Rejection's Message.
type Challenge struct{ Message string }

func (c *Challenge) Error() string {
	if c.Message == "" {
		return ErrMoreAsked.Error()
	}
	return ErrMoreAsked.Error() + ": " + c.Message
}

// Unwrap lets errors.Is match ErrMoreAsked.
func (c *Challenge) Unwrap() error { return ErrMoreAsked }

// Reject returns a Rejection.
func Reject(message string) error { return &Rejection{Message: message} }

func (r *Rejection) Error() string {
	switch {
	case r.Reason == UsedToday:
		return ErrRejected.Error() + ": the day's time or data is used up"
	case r.Reason != "":
		return ErrRejected.Error() + ": the voucher is " + string(r.Reason)
	case r.Message == "":
		return ErrRejected.Error()
	}
	return ErrRejected.Error() + ": " + r.Message
}

// Unwrap lets errors.Is match ErrRejected.
func (r *Rejection) Unwrap() error { return ErrRejected }

// RejectMessage returns Message, for callers that know only this interface.
func (r *Rejection) RejectMessage() string { return r.Message }
