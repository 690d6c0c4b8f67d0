package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/words"
)

// Admission kinds: what a client must do before the router forwards its traffic.
const (
	AdmitNone    = ""        // nothing: traffic is forwarded at once
	AdmitOpenNDS = "opennds" // openNDS click-through: redirect, splash, continue
	AdmitForm    = "form"    // the form of a login page, with an RFC 8908 API beside it
	AdmitUAM     = "uam"     // CoovaChilli's universal access method with a CHAP response
	AdmitCommand = "command" // the user's own commands, run in the client's namespace
)

// Admission says how clients of a DUT get and lose access. It is sent to the
// client host's agent as JSON.
type Admission struct {
	Kind string `json:"kind"`
	// Portal is the address of the portal: "host:port".
	Portal string `json:"portal,omitempty"`
	// Probe is the URL a client asks for first, as a phone's captive-portal check would.
	Probe string `json:"probe,omitempty"`
	// API is the URL of the captive portal API (RFC 8908), for AdmitForm.
	API string `json:"api,omitempty"`
	// User and Password are used by AdmitForm and AdmitUAM; "%d" in User becomes the client's number.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// Secret is the UAM secret shared by portal and gateway (CoovaChilli uamsecret).
	Secret string `json:"secret,omitempty"`
	// Login, Status and Logout are argument vectors for AdmitCommand.
	Login  []string `json:"login,omitempty"`
	Status []string `json:"status,omitempty"`
	Logout []string `json:"logout,omitempty"`
	// Parallel is how many logins at once suit the portal; zero: it does not say.
	Parallel int `json:"parallel,omitempty"`
}

// Network opens sockets as one simulated client.
type Network interface {
	// DialContext connects from the client's address; network is "tcp", addr is "ip:port".
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	// LocalIP is the client's address; the zero Addr before it has one.
	LocalIP() netip.Addr
	// Exec runs a command in the client's namespace and returns what it printed.
	// An exit status other than zero is an error. env comes on top of what the
	// implementor's own programs have.
	Exec(ctx context.Context, argv []string, env []string) (string, error)
}

// Limits of one login.
const (
	// loginAttempts bounds how often one client tries. Portals drop requests
	// when a hundred clients arrive together, so a first refusal means little.
	// Where nothing listens it tries for as long as one attempt may take: openNDS
	// restarts its web server when that was too busy.
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

// guestVisit is one client at its portal; the kinds of portal embed it.
type guestVisit struct {
	browser
	adm Admission
	num int // the client's, from 1
}

// user is the client's name.
func (v *guestVisit) user() string { return strings.ReplaceAll(v.adm.User, "%d", strconv.Itoa(v.num)) }

// get asks for a page. The Accept header is never left out: openNDS drops requests without.
func (v *guestVisit) get(ctx context.Context, address, accept string) (*answer, error) {
	return v.fetch(ctx, http.MethodGet, address, "", field{"Accept", accept})
}

// maxSplashPages bounds a click-through; openNDS's own sequence has three.
const maxSplashPages = 6

// open asks for a page, with a form's values, and follows redirects as long as they lead
// into the portal.
func (v *guestVisit) open(ctx context.Context, method, address, values, accept string) (*answer, error) {
	for range maxSplashPages {
		fields := []field{{"Accept", accept}}
		if method == http.MethodPost {
			// Pages of portals send their forms to the portal.
			fields = append(
				fields, field{"Content-Type", "application/x-www-form-urlencoded"}, field{"Origin", "http://" + v.adm.Portal})
		}
		page, err := v.fetch(ctx, method, address, values, fields...)
		if err != nil {
			return nil, err
		}
		if page.status >= 500 && page.status != http.StatusNetworkAuthenticationRequired { // no page of the way in
			return nil, fmt.Errorf("asking for %s: %s", withoutQuery(page.url), page.text())
		}
		to, nowhere := page.location()
		if !page.redirects() || nowhere != nil || to.Host != v.adm.Portal {
			return page, nil
		}
		method, address, values = http.MethodGet, to.String(), ""
	}
	return nil, fmt.Errorf("still redirected after %d pages", maxSplashPages)
}

// portalOf chooses the protocol by the kind of admission.
func portalOf(n Network, adm Admission, num int) (portal, error) {
	v := guestVisit{browser{net: n, keepAlive: adm.Kind == AdmitForm}, adm, num}
	switch adm.Kind {
	case AdmitNone:
		return &noPortal{v}, nil
	case AdmitOpenNDS:
		return &openNDSPortal{v}, nil
	case AdmitForm:
		return &formPortal{guestVisit: v}, nil
	case AdmitUAM:
		return &uamPortal{v}, nil
	case AdmitCommand:
		return &commandPortal{guestVisit: v}, nil
	}
	return nil, fmt.Errorf(
		"unknown admission %q; known: %q, %q, %q, %q and none", adm.Kind, AdmitOpenNDS, AdmitForm, AdmitUAM, AdmitCommand)
}

// Login admits one client, retrying inside ctx, and succeeds once Status says that the
// client is admitted. num is the client's number, from 1; each bounds one attempt, zero: 20 s.
func Login(ctx context.Context, n Network, adm Admission, num int, each time.Duration) (tries Tries, err error) {
	p, err := portalOf(n, adm, num)
	if err != nil {
		return tries, err
	}
	defer p.leave()
	start, each := time.Now(), cmp.Or(each, attemptTimeout)
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		if err = loginOnce(ctx, p, each); err == nil {
			tries.Count++
			return tries, nil
		}
		tries.Add(Tries{Count: 1, Refusal: err})
		restarting := errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) < each
		if tries.Count >= loginAttempts && !restarting {
			return tries, fmt.Errorf(
				"logging in client %d (%s), %s: %w", num, n.LocalIP(), words.Counted(tries.Count, "attempt"), err)
		}
		sleepUntil(ctx, time.Now().Add(backoff))
		if ctx.Err() != nil {
			return tries, fmt.Errorf("logging in client %d (%s), %s: %w", num, n.LocalIP(), context.Cause(ctx), err)
		}
	}
}

// loginOnce asks for access and believes only the portal's status: a lost
// answer to a granted request is a success, a friendly page is none.
func loginOnce(ctx context.Context, p portal, each time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	loginErr := p.login(ctx)
	admitted, err := p.status(ctx)
	switch {
	case admitted:
		return nil
	case loginErr != nil && err != nil:
		return fmt.Errorf("%w, and no word of a session: %w", loginErr, err)
	case loginErr != nil:
		return loginErr
	case err != nil:
		return fmt.Errorf("asking the portal for the session: %w", err)
	}
	if c, ok := p.(*commandPortal); ok && c.denied != nil {
		return fmt.Errorf("the portal took the login but has no session: %w", c.denied)
	}
	return fmt.Errorf("the portal took the login but has no session: %w", errRefused)
}

// Status reports whether the portal counts the client as admitted.
func Status(ctx context.Context, n Network, adm Admission, num int) (admitted bool, err error) {
	p, err := portalOf(n, adm, num)
	if err == nil {
		defer p.leave()
		admitted, err = p.status(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("status of client %d (%s): %w", num, n.LocalIP(), err)
	}
	return admitted, nil
}

// Logout ends the client's session. It is no error when there is none.
func Logout(ctx context.Context, n Network, adm Admission, num int) error {
	p, err := portalOf(n, adm, num)
	if err == nil {
		defer p.leave()
		err = p.logout(ctx)
	}
	if err != nil {
		return fmt.Errorf("logging out client %d (%s): %w", num, n.LocalIP(), err)
	}
	return nil
}

// noPortal is the portal of a router without one.
type noPortal struct{ guestVisit }

func (*noPortal) login(context.Context) error          { return nil }
func (*noPortal) status(context.Context) (bool, error) { return true, nil }
func (*noPortal) logout(context.Context) error         { return nil }

// What a command knows of the client it runs as, beside the lab's own variables,
// which experiment.Vars lists.
const (
	VarClient   = "GATEWEIGH_CLIENT"    // its number, from 1
	VarClientIP = "GATEWEIGH_CLIENT_IP" // its address
)

// commandPortal logs in with the user's own commands, run in the client's namespace.
type commandPortal struct {
	guestVisit
	refused bool  // the last login failed
	denied  error // why the last status command says that the client is not admitted
}

func (c *commandPortal) login(ctx context.Context) error {
	err := c.run(ctx, "login", c.adm.Login)
	c.refused = err != nil
	return err
}

// status is the status command's exit status: zero is admitted. Without a
// status command the result of the login command counts.
func (c *commandPortal) status(ctx context.Context) (bool, error) {
	if len(c.adm.Status) == 0 {
		return !c.refused, nil
	}
	c.denied = c.run(ctx, "status", c.adm.Status)
	if c.denied != nil {
		return false, ctx.Err()
	}
	return true, nil
}

func (c *commandPortal) logout(ctx context.Context) error {
	if len(c.adm.Logout) == 0 {
		return nil
	}
	return c.run(ctx, "logout", c.adm.Logout)
}

// commandForError is a command in a line: without the lab's variables before it (env KEY=VALUE …), and of a script the
// first line.
func commandForError(argv []string) string {
	for len(argv) > 1 && (argv[0] == "env" || strings.HasPrefix(argv[0], "GATEWEIGH_")) {
		argv = argv[1:]
	}
	text := strings.Join(argv, " ")
	if len(argv) == 3 && argv[0] == "sh" && argv[1] == "-c" {
		text = argv[2]
	}
	first, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more {
		first += " …"
	}
	return first
}

// run executes one of the user's commands as the client.
func (c *commandPortal) run(ctx context.Context, verb string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("the " + verb + " command is empty")
	}
	env := []string{VarClient + "=" + strconv.Itoa(c.num), VarClientIP + "=" + c.net.LocalIP().String()}
	if _, err := c.net.Exec(ctx, argv, env); err != nil {
		return fmt.Errorf("%s command %q: %w", verb, commandForError(argv), err)
	}
	return nil
}
