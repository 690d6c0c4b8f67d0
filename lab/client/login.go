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

// Kinds of admission: what a client must do before the router forwards its traffic.
const (
	AdmitNone    = ""        // nothing: traffic is forwarded at once
	AdmitOpenNDS = "opennds" // openNDS click-through: redirect, splash, continue
	AdmitForm    = "form"    // the form of a login page, with an RFC 8908 API beside it
	AdmitUAM     = "uam"     // CoovaChilli's universal access method with a CHAP response
	AdmitCommand = "command" // the user's own commands, run in the client's namespace
)

// Admission describes how clients log in and log out at the device under test. The lab sends it as JSON to the agent of
// the client host.
type Admission struct {
	Kind string `json:"kind"`
	// Portal is the address of the portal: "host:port".
	Portal string `json:"portal,omitempty"`
	// Probe is the URL a client asks for first, as a phone's captive-portal check would.
	Probe string `json:"probe,omitempty"`
	// API is the URL of the captive portal API (RFC 8908), for AdmitForm.
	API string `json:"api,omitempty"`
	// Portal6, Probe6 and API6 are the same for clients that send by IPv6 (see Family.Sends6). Empty: they log in by IPv4.
	Portal6 string `json:"portal6,omitempty"`
	Probe6  string `json:"probe6,omitempty"`
	API6    string `json:"api6,omitempty"`
	// User and Password are used by AdmitForm and AdmitUAM; "%d" in User becomes the client's number.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// Secret is the UAM secret shared by portal and gateway (CoovaChilli uamsecret).
	Secret string `json:"secret,omitempty"`
	// Login, Status and Logout are argument vectors for AdmitCommand.
	Login  []string `json:"login,omitempty"`
	Status []string `json:"status,omitempty"`
	Logout []string `json:"logout,omitempty"`
	// Parallel is how many clients may log in at the same time; zero: the caller decides.
	Parallel int `json:"parallel,omitempty"`
}

// from returns the admission with the addresses for a client that sends from an address.
func (a Admission) from(local netip.Addr) Admission {
	if local.Is6() && a.Portal6 != "" {
		a.Portal, a.Probe, a.API = a.Portal6, a.Probe6, a.API6
	}
	return a
}

// Network opens sockets as one simulated client.
type Network interface {
	// DialContext connects from the client's address; network is "tcp", addr is "ip:port".
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	// LocalIP is the client's address; the zero Addr before it has one.
	LocalIP() netip.Addr
	// Exec runs a command in the client's namespace and returns what it printed. An exit status other than zero is an
	// error. env is added to the environment of the agent's programs.
	Exec(ctx context.Context, argv []string, env []string) (string, error)
}

// Limits of one login.
const (
	// loginAttempts is how often a client tries. Portals drop requests when a hundred clients arrive together, so one
	// refusal means little. openNDS restarts its web server when that was too busy; while nothing listens on the portal's
	// port, a client therefore goes on trying for as long as one attempt may take.
	loginAttempts = 8
	// attemptTimeout ends an attempt that the portal does not answer. openNDS answers one request at a time, so a client
	// may wait behind all the others.
	attemptTimeout = 20 * time.Second
	// With thousands of clients that wait behind each other an attempt may take attemptPerClient for each of them, but at
	// most longestAttempt, which is about when browsers give up.
	attemptPerClient = 10 * time.Millisecond
	longestAttempt   = 90 * time.Second
	firstBackoff     = 50 * time.Millisecond
	maxBackoff       = time.Second
)

// errRefused is the error of a login that the portal understood and denied.
var errRefused = errors.New("refused by the portal")

// attemptLimit returns the time limit of one attempt when this number of clients log in.
func attemptLimit(clients int) time.Duration {
	return min(longestAttempt, max(attemptTimeout, time.Duration(clients)*attemptPerClient))
}

// portal is the protocol of one kind of portal, for one client.
type portal interface {
	// login asks for access once. A nil error does not prove access, so Login calls status afterwards.
	login(ctx context.Context) error
	// status reports whether the portal counts the client as admitted.
	status(ctx context.Context) (bool, error)
	// logout gives access up. It is no error when the client had none.
	logout(ctx context.Context) error
	// closeIdle closes the connection that is kept for the next request. The portal may be used again.
	closeIdle()
}

// portalClient is one client of a portal. The implementations of portal embed it.
type portalClient struct {
	browser
	adm Admission
	num int // the client's, from 1
}

// user returns the client's user name.
func (v *portalClient) user() string {
	return strings.ReplaceAll(v.adm.User, "%d", strconv.Itoa(v.num))
}

// get requests a page. accept must not be empty, because openNDS drops requests without an Accept header.
func (v *portalClient) get(ctx context.Context, address, accept string) (*answer, error) {
	return v.fetch(ctx, http.MethodGet, address, "", field{"Accept", accept})
}

// maxSplashPages is how many pages a client clicks through at most; openNDS's own sequence has three.
const maxSplashPages = 6

// open requests a page, with a form's values for POST, and follows redirects within the portal. It returns the last
// page.
func (v *portalClient) open(ctx context.Context, method, address, values, accept string) (*answer, error) {
	for range maxSplashPages {
		fields := []field{{"Accept", accept}}
		if method == http.MethodPost {
			// The headers that a browser sends with a form.
			fields = append(
				fields, field{"Content-Type", "application/x-www-form-urlencoded"}, field{"Origin", "http://" + v.adm.Portal})
		}
		page, err := v.fetch(ctx, method, address, values, fields...)
		if err != nil {
			return nil, err
		}
		if page.status >= 500 && page.status != http.StatusNetworkAuthenticationRequired { // not a page of a login
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

// newPortal returns the portal of an admission, for client num.
func newPortal(n Network, adm Admission, num int) (portal, error) {
	adm = adm.from(n.LocalIP())
	v := portalClient{browser{net: n, keepAlive: adm.Kind == AdmitForm}, adm, num}
	switch adm.Kind {
	case AdmitNone:
		return &noPortal{v}, nil
	case AdmitOpenNDS:
		return &openNDSPortal{v}, nil
	case AdmitForm:
		return &formPortal{portalClient: v}, nil
	case AdmitUAM:
		return &uamPortal{v}, nil
	case AdmitCommand:
		return &commandPortal{portalClient: v}, nil
	}
	return nil, fmt.Errorf(
		"unknown admission %q; known: %q, %q, %q, %q and none", adm.Kind, AdmitOpenNDS, AdmitForm, AdmitUAM, AdmitCommand)
}

// Login logs one client in, with repeated attempts until ctx ends. It succeeds once the portal's status says that the
// client is admitted. num is the client's number, from 1. limit is the longest time of one attempt; zero:
// attemptTimeout.
func Login(ctx context.Context, n Network, adm Admission, num int, limit time.Duration) (tries Tries, err error) {
	p, err := newPortal(n, adm, num)
	if err != nil {
		return tries, err
	}
	defer p.closeIdle()
	start, limit := time.Now(), cmp.Or(limit, attemptTimeout)
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		if err = loginOnce(ctx, p, limit); err == nil {
			tries.Count++
			return tries, nil
		}
		tries.Add(Tries{Count: 1, Refusal: err})
		restarting := errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) < limit
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

// loginOnce is one attempt. Whether it has succeeded is decided by the portal's status afterwards alone, because the
// answer to a granted login may be lost, and a page that looks like success may be wrong.
func loginOnce(ctx context.Context, p portal, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
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
	p, err := newPortal(n, adm, num)
	if err == nil {
		defer p.closeIdle()
		admitted, err = p.status(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("status of client %d (%s): %w", num, n.LocalIP(), err)
	}
	return admitted, nil
}

// Logout ends the client's session. It is no error when there is none.
func Logout(ctx context.Context, n Network, adm Admission, num int) error {
	p, err := newPortal(n, adm, num)
	if err == nil {
		defer p.closeIdle()
		err = p.logout(ctx)
	}
	if err != nil {
		return fmt.Errorf("logging out client %d (%s): %w", num, n.LocalIP(), err)
	}
	return nil
}

// noPortal stands for the portal of a router that has none: every client is admitted.
type noPortal struct{ portalClient }

func (*noPortal) login(context.Context) error          { return nil }
func (*noPortal) status(context.Context) (bool, error) { return true, nil }
func (*noPortal) logout(context.Context) error         { return nil }

// Environment variables of commands that run as a client, besides those of the lab (experiment.Vars).
const (
	VarClient   = "GATEWEIGH_CLIENT"    // its number, from 1
	VarClientIP = "GATEWEIGH_CLIENT_IP" // its address
)

// commandPortal logs in with the user's own commands, run in the client's namespace.
type commandPortal struct {
	portalClient
	refused bool  // the last login failed
	denied  error // why the last status command says that the client is not admitted
}

func (c *commandPortal) login(ctx context.Context) error {
	err := c.run(ctx, "login", c.adm.Login)
	c.refused = err != nil
	return err
}

// status runs the status command; its exit status 0 means admitted. Without such a command, the exit status of the
// login command decides.
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

// commandForError returns a command as one line, for errors. It leaves out the lab's variables (env KEY=VALUE …) and
// all but the first line of a script.
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

// run runs one of the user's commands as the client.
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
