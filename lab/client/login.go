package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Network opens sockets as one simulated client.
type Network interface {
	// DialContext connects from the client's address; network is "tcp" or "udp",
	// addr is "ip:port".
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	// LocalIP is the client's address; the zero Addr before it has one.
	LocalIP() netip.Addr
	// Exec runs a command in the client's namespace and returns what it printed.
	// An exit status other than zero is an error. env comes on top of what the
	// implementor's own programs have.
	Exec(ctx context.Context, argv []string, env []string) (string, error)
}

// Limits of one log-in.
const (
	// loginAttempts bounds how often one client tries. Portals drop requests
	// when a hundred clients arrive together, so a first refusal means little.
	loginAttempts = 8
	// attemptTimeout ends an attempt the portal never answers. openNDS answers
	// one request at a time, so a client may wait behind all the others.
	attemptTimeout = 20 * time.Second
	// Where thousands come together a client waits behind more of them, and no
	// browser gives up before longestAttempt.
	attemptPerClient = 10 * time.Millisecond
	longestAttempt   = 90 * time.Second
	firstBackoff     = 50 * time.Millisecond
	lastBackoff      = time.Second
)

// errRefused says that the portal understood the request and denied it.
var errRefused = errors.New("refused by the portal")

// attemptFor is how long one of so many clients waits for an attempt to end.
func attemptFor(clients int) time.Duration {
	return min(longestAttempt, max(attemptTimeout, time.Duration(clients)*attemptPerClient))
}

// portal speaks one kind of portal's protocol for one client.
type portal interface {
	// login asks for access once. A nil error does not prove access: Login asks status too.
	login(ctx context.Context) error
	// status reports whether the portal counts the client as admitted.
	status(ctx context.Context) (bool, error)
	// logout gives access up; it is no error when there was none.
	logout(ctx context.Context) error
	// leave closes connections that are still open; the portal may be used again.
	leave()
}

// Login admits one client, retrying inside ctx, and returns nil once Status
// says the client is admitted. num is the client's number, from 1.
func Login(ctx context.Context, n Network, adm Admission, num int) error {
	_, err := tryLogin(ctx, n, adm, num, attemptTimeout)
	return err
}

// tryLogin is Login with the number of attempts. each bounds one of them.
func tryLogin(ctx context.Context, n Network, adm Admission, num int, each time.Duration) (tries Tries, err error) {
	p, err := portalOf(n, adm, num)
	if err != nil {
		return tries, err
	}
	defer p.leave()
	backoff := firstBackoff
	for tries.Count < loginAttempts {
		if tries.Count > 0 {
			select {
			case <-ctx.Done():
				return tries, fmt.Errorf("logging in client %d (%s), %s: %w", num, n.LocalIP(), context.Cause(ctx), err)
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, lastBackoff)
		}
		tries.Count++
		if err = loginOnce(ctx, p, each); err == nil {
			return tries, nil
		}
		if tries.Refusal == nil {
			tries.Refusal = err
		}
	}
	return tries, fmt.Errorf("logging in client %d (%s), %d attempts: %w", num, n.LocalIP(), loginAttempts, err)
}

// loginOnce asks for access and believes only the portal's status: a lost
// answer to a granted request is a success, a friendly page is none.
func loginOnce(ctx context.Context, p portal, each time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	asked := p.login(ctx)
	admitted, err := p.status(ctx)
	switch {
	case admitted:
		return nil
	case asked != nil && err != nil:
		return fmt.Errorf("%w, and no word of a session: %w", asked, err)
	case asked != nil:
		return asked
	case err != nil:
		return fmt.Errorf("asking the portal for the session: %w", err)
	default:
		return fmt.Errorf("the portal took the log-in but has no session: %w", errRefused)
	}
}

// Status reports whether the portal counts the client as admitted.
func Status(ctx context.Context, n Network, adm Admission, num int) (bool, error) {
	p, err := portalOf(n, adm, num)
	if err != nil {
		return false, err
	}
	defer p.leave()
	admitted, err := p.status(ctx)
	if err != nil {
		return false, fmt.Errorf("status of client %d (%s): %w", num, n.LocalIP(), err)
	}
	return admitted, nil
}

// Logout ends the client's session. It is no error when there is none.
func Logout(ctx context.Context, n Network, adm Admission, num int) error {
	p, err := portalOf(n, adm, num)
	if err != nil {
		return err
	}
	defer p.leave()
	if err := p.logout(ctx); err != nil {
		return fmt.Errorf("logging out client %d (%s): %w", num, n.LocalIP(), err)
	}
	return nil
}

// portalOf chooses the protocol by the kind of admission.
func portalOf(n Network, adm Admission, num int) (portal, error) {
	switch adm.Kind {
	case AdmitNone:
		return openDoor{}, nil
	case AdmitOpenNDS:
		return &openNDSPortal{browser: browser{net: n}, portal: adm.Portal, probe: adm.Probe}, nil
	case AdmitForm:
		return newForm(n, adm, num), nil
	case AdmitUAM:
		return newUAM(n, adm, num), nil
	case AdmitCommand:
		return &commandPortal{net: n, adm: adm, num: num}, nil
	}
	return nil, fmt.Errorf("unknown admission %q; known: %q, %q, %q, %q and none", adm.Kind, AdmitOpenNDS, AdmitForm, AdmitUAM, AdmitCommand)
}

// openDoor is the portal of a router without one.
type openDoor struct{}

func (openDoor) login(context.Context) error          { return nil }
func (openDoor) status(context.Context) (bool, error) { return true, nil }
func (openDoor) logout(context.Context) error         { return nil }
func (openDoor) leave()                               {}
