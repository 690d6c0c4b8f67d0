// Package radius asks RADIUS servers who may log in (RFC 2865) and tells them what the clients have used (RFC 2866),
// over a transport of its own.
//
// # Trust
//
// RADIUS over UDP is signed with MD5 and a shared secret. Two things make up for what that lacks (CVE-2024-3596,
// "BlastRADIUS"): Message-Authenticator (RFC 3579, 3.2) is the first attribute of each Access-Request, and an
// Access-Accept, -Reject or -Challenge without a right one is dropped and counted while the wait for a true answer goes
// on. There is no switch for it. FreeRADIUS signs its answers since 3.2.5; older ones need, in post-auth and in
// Post-Auth-Type REJECT, "update reply { Message-Authenticator := 0x00 }". An answer must also come from the address
// asked, to the port asked from, with an identifier that is waited for and the right Response Authenticator.
//
// # Transport
//
// A request is sent again with the same identifier and authenticator after Timeout, and then after twice the last wait,
// each ± 10 % (RFC 5080, 2.2.1). In accounting Acct-Delay-Time grows with the waiting: once it has, the packet is
// another one, with an identifier of its own, and an answer to either ends the exchange. A server that answered no
// request through all transmissions is skipped for DeadTime; then one request tries it with one packet. When no server
// is left, the skipped ones are asked as well. Where the caller's time is bounded, each server has an equal part of it,
// and one that is silent through its part is skipped as well. All that were asked are listened to until the caller's
// time is over, and the first authentic answer counts. One that comes later is counted and logged as late.
//
// # Attributes
//
// attributes.go has those that are sent and understood, with their units; docs/reference/gatewayd-radius.md is made of
// it.
//
// # Requests of servers
//
// Dynamic carries out Disconnect- and CoA-Requests (RFC 5176) of the configured servers, signed with their
// secrets. Sessions are named by Acct-Session-Id, User-Name, Framed-IP-Address, Framed-IPv6-Address,
// Calling-Station-Id and NAS-Port, of which all that are there must be right. A CoA-Request changes the limits
// that it names, by the attributes above; anything else is refused.
//
// An Access-Challenge admits nobody: neither PAP nor CHAP can answer one (RFC 2865, 4.4). Other attributes are ignored.
package radius

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// ErrNoServer means that no server gave an authentic answer. Its text lists the result for each server.
var ErrNoServer = errors.New("no radius server answered")

// Method is how the password is sent.
type Method string

const (
	PAP  Method = "pap"  // hidden with the secret (RFC 2865, 5.2)
	CHAP Method = "chap" // a digest; the server must know the plain password (RFC 2865, 2.2)
)

// PortType is the medium by which clients at the portal are connected; PPPoE clients are by Ethernet.
type PortType string

const (
	Wireless PortType = "wireless" // NAS-Port-Type Wireless-802.11
	Ethernet PortType = "ethernet" // NAS-Port-Type Ethernet
)

// Server is one RADIUS server.
type Server struct {
	Address netip.AddrPort // authentication
	// AcctAddress is for accounting; zero: Address with the next port, as 1813 follows 1812.
	AcctAddress netip.AddrPort
	Secret      string // shared with this gateway; at least 16 random characters are advised
}

// Config is the configuration of a Client. Only the servers, their secrets and the gateway's name or address are
// required.
type Config struct {
	Servers []Server   // at least one; in order of preference
	Source  netip.Addr // address to send from; zero: the kernel chooses

	NASIdentifier   string     // this or NASAddress must be given (RFC 2865, 4.1); at most 253 bytes
	NASAddress      netip.Addr // IPv4
	NASPortType     PortType   // default Wireless
	NASPortID       string     // such as the LAN interface's name; empty: not sent
	VLANPorts       bool       // NAS-Port-Id and NAS-Port are the client's VLANs where they are known
	CalledStationID string     // such as 02-00-00-00-00-FF:Guests; empty: not sent

	Method   Method        // default PAP
	Timeout  time.Duration // wait after the first transmission, default 1 s, because a user waits at the login page
	Retries  int           // transmissions after the first, to each server, default 2; negative: none
	DeadTime time.Duration // how long a server that does not answer is skipped, default 30 s
	// InFlight bounds the requests in flight that had no time to be answered yet, for logins and accounting
	// each, default 128: about the capacity of a server's socket buffer. Logins of PPPoE clients, and other
	// logins, have three quarters of it each, and devices without a person half, so that a flood of one keeps out none
	// of the others.
	InFlight int
	// Waiting bounds further requests that wait for their turn, default 10,000: as many logins as the portal has
	// connections. Both kinds of logins have as many each.
	Waiting int

	// InterimDefault is the time between interim updates unless the server sets one; 0: none, otherwise at least 60 s.
	InterimDefault time.Duration
	// SwapOctets makes input what the client received, in accounting and in ChilliSpot-Max-*, for servers that expect
	// this.
	SwapOctets bool
	// Connections: limits of connections are carried out.
	Connections bool
	Profiles    map[string]Profile // by what Filter-Id calls them
	Log         *slog.Logger       // of what servers do wrong; nil: discarded
	// Prefixes returns the IPv6 prefixes that are a session's alone. nil: none are.
	Prefixes func(session.Session) Prefixes
	// Others carries servers' requests out that are about no session of this gateway; nil: there are no others.
	Others Others
	// LocalAccounts means that passwords are also checked without these servers: Acct-Authentic is then Local.
	LocalAccounts bool
	// LocalUsers begins the users whom vouchers let in: Acct-Authentic is Local; empty: there are none.
	LocalUsers string
}

// Bounds and defaults. The longest wait is RFC 5080's MRT.
const (
	defaultTimeout  = time.Second
	defaultRetries  = 2
	defaultDeadTime = 30 * time.Second
	defaultInFlight = 128
	defaultWaiting  = 10_000
	minInterim      = time.Minute
	longestWait     = 16 * time.Second
	maxRetries      = 20
	maxInFlight     = 65536
)

// withDefaults fills in zero values.
func (c Config) withDefaults() Config {
	c.NASPortType = cmp.Or(c.NASPortType, Wireless)
	c.Method = cmp.Or(c.Method, PAP)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Retries = max(0, cmp.Or(c.Retries, defaultRetries))
	c.DeadTime = cmp.Or(c.DeadTime, defaultDeadTime)
	c.InFlight = cmp.Or(c.InFlight, defaultInFlight)
	c.Waiting = cmp.Or(c.Waiting, defaultWaiting)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Servers = append([]Server(nil), c.Servers...)
	for i, s := range c.Servers {
		if !s.AcctAddress.IsValid() {
			c.Servers[i].AcctAddress = netip.AddrPortFrom(s.Address.Addr(), s.Address.Port()+1)
		}
	}
	return c
}

// check refuses invalid configurations; defaults are filled in.
func (c Config) check() error {
	switch {
	case len(c.Servers) == 0:
		return errors.New("no server given")
	case c.NASIdentifier == "" && !c.NASAddress.IsValid():
		return errors.New("neither the gateway's identifier nor its address given: servers need one to know it by")
	case c.NASAddress.IsValid() && !c.NASAddress.Unmap().Is4():
		return fmt.Errorf("%s as the gateway's address: must be an IPv4 address", c.NASAddress)
	case c.NASPortType != Wireless && c.NASPortType != Ethernet:
		return fmt.Errorf("port type %q: must be %q or %q", c.NASPortType, Wireless, Ethernet)
	case c.Method != PAP && c.Method != CHAP:
		return fmt.Errorf("method %q: must be %q or %q", c.Method, PAP, CHAP)
	case c.Timeout < 0 || c.DeadTime < 0 || c.Waiting < 0:
		return errors.New("a time or a bound is negative")
	case c.Retries > maxRetries:
		return fmt.Errorf("%d retries: must be %d at most", c.Retries, maxRetries)
	case c.InFlight < 1 || c.InFlight > maxInFlight:
		return fmt.Errorf("%d requests in flight: must be 1 to %d", c.InFlight, maxInFlight)
	case c.InterimDefault != 0 && c.InterimDefault < minInterim:
		return fmt.Errorf("interim updates every %s: must be 0 (none) or at least %s", c.InterimDefault, minInterim)
	}
	for _, text := range []string{c.NASIdentifier, c.NASPortID, c.CalledStationID} {
		if len(text) > maxValue {
			return fmt.Errorf("%.20q…: must be %d bytes at most", text, maxValue)
		}
	}
	for i, s := range c.Servers {
		if err := s.check(); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
	}
	return nil
}

func (s Server) check() error {
	switch {
	case !s.Address.IsValid() || s.Address.Port() == 0:
		return errors.New("must have an address and a port")
	case s.AcctAddress.Port() == 0:
		return errors.New("must have a port for accounting")
	case s.Secret == "":
		return fmt.Errorf("%s: the secret is empty: anybody could answer in its name", s.Address)
	}
	return nil
}

// Client sends requests to the servers. Its methods may be called from several goroutines.
type Client struct {
	cfg        Config
	auth, acct *service
	boot       string    // Acct-Session-Id of Accounting-On and -Off
	uncounted  sync.Once // to log limits of connections that nothing counts
}

// New creates a client. It sends nothing yet.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("radius: %w", err)
	}
	var id [8]byte
	rand.Read(id[:]) // never fails: on an error crypto/rand ends the program
	c := &Client{cfg: cfg, boot: hex.EncodeToString(id[:]), auth: newService(cfg, maxOfOneSource(cfg.InFlight)),
		acct: newService(cfg, cfg.InFlight)}
	for i, s := range cfg.Servers {
		c.auth.add(cfg, s.Address, s.Secret)
		c.acct.add(cfg, s.AcctAddress, s.Secret)
		c.acct.endpoints[i].logins = c.auth.endpoints[i]
	}
	return c, nil
}

// Close ends requests in flight with net.ErrClosed, and the sockets. It may be called twice.
func (c *Client) Close() error {
	c.auth.close()
	c.acct.close()
	return nil
}

// Authenticate asks whether a client may log in, and with which limits. Errors wrap session.ErrRejected (a
// *session.Rejection with the server's Reply-Message), session.ErrUnfit, session.ErrMoreAsked, session.ErrBusy,
// ErrNoServer, or are ctx's. ctx's time is shared among the servers; when it is over the error is ErrNoServer, with
// what is known of each server.
func (c *Client) Authenticate(ctx context.Context, credentials session.Credentials) (session.Login, error) {
	if !sendable(credentials) {
		return session.Login{}, fmt.Errorf("radius: %w: no request can have such a name or password", session.Reject(""))
	}
	source := byPortal
	switch {
	case credentials.CallCheck:
		source = byDevice
	case credentials.Port != 0:
		source = byLine
	}
	answer, err := c.auth.exchangeInOrder(
		ctx, &accessRequest{cfg: &c.cfg, credentials: credentials}, source, credentials.Failures)
	if err != nil {
		return session.Login{}, fmt.Errorf("radius: %w", err)
	}
	login, err := c.decide(credentials, answer)
	if err != nil {
		return session.Login{}, fmt.Errorf("radius: %w", err)
	}
	return login, nil
}

// Account sends an event of an authenticated session. It returns nil once a server has confirmed the event. After an
// error the event may still have arrived and must be sent again. Errors wrap session.ErrBusy, ErrNoServer, or are
// ctx's.
func (c *Client) Account(ctx context.Context, e session.Event) error {
	r, err := c.event(e)
	if err == nil {
		_, err = c.acct.exchangeInOrder(ctx, r, byPortal, 0)
	}
	if err != nil {
		return fmt.Errorf("radius: accounting %s of session %s: %w", e.Kind, e.ID, err)
	}
	return nil
}

// AccountingOn reports that the gateway starts without sessions (RFC 2866, 5.1): servers end sessions that they still
// have. It must not be called when sessions have survived a restart. Errors are Account's.
func (c *Client) AccountingOn(ctx context.Context) error { return c.accounting(ctx, true) }

// AccountingOff reports that the gateway ends, and all its sessions with it. Errors are Account's.
func (c *Client) AccountingOff(ctx context.Context) error { return c.accounting(ctx, false) }

func (c *Client) accounting(ctx context.Context, enabled bool) error {
	if _, err := c.acct.exchangeInOrder(ctx, c.restart(enabled), byPortal, 0); err != nil {
		return fmt.Errorf("radius: accounting on or off: %w", err)
	}
	return nil
}
