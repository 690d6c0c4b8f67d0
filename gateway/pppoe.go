package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/access"
	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/ppp"
)

// pppoeAccess decides about PPPoE clients: a login is an authentication, an address, and a session in the table.
type pppoeAccess struct {
	auth  access.Sources
	table limitDefaults
	pools map[string]*pool // by name; "": of clients whose login names none
	dns   [2]netip.Addr
	// server is the concentrator, which is told of sessions that end.
	server    *pppoe.Server
	backedOff atomic.Uint64 // logins that came too soon after wrong passwords
}

var _ pppoe.Access = (*pppoeAccess)(nil)

// openLines creates the concentrator if it is enabled, and has it take up the sessions that the table has.
func (g *gateway) openLines(context.Context) (o opened, err error) {
	if !g.cfg.PPPoE.Enabled {
		return o, nil
	}
	sources, accounts, err := g.authenticator() // of its own: each way in has its own queue for hashes
	if err != nil {
		return o, err
	}
	if g.users == nil {
		g.users = accounts
	}
	l := &pppoeAccess{auth: sources, table: limitDefaults{g.table, g, false}, pools: pools(g.cfg)}
	copy(l.dns[:], resolvers(g.cfg))
	lines := g.pppoeConfig()
	if lines.InterfaceID, err = g.interfaceID(); err != nil {
		return o, err
	}
	if l.server, err = pppoe.New(lines, l); err != nil {
		return o, err
	}
	g.pppoe, g.pppoeAccess = l.server, l
	g.table.Follow(func(k session.Key, line session.PPPoESession) {
		g.behind.remove(k, line)
		g.ended6(k, line.Session)
		l.server.End(k.MAC, line.Session)
	})
	o = opened{run: l.server.Serve, close: func() error { l.server.Close(); return nil }}
	return o, l.takeUp()
}

func (g *gateway) pppoeConfig() pppoe.Config {
	p := g.cfg.PPPoE
	cfg := pppoe.Config{
		Interface: g.cfg.LAN.Interface, Name: p.Name, Services: p.Services, Address: g.cfg.LAN.Address.Addr(),
		Opened6:    g.opened6,
		MaxPayload: p.MTU, PerMAC: p.PerMAC, MaxSessions: p.MaxSessions, Waiting: p.Waiting, Delay: p.Delay,
		Echo:         p.Echo,
		EchoFailures: p.EchoFailures, Log: g.log,
	}
	cfg.Carrier = g.dp.Carrier
	for _, m := range pppMethods(g.cfg) {
		cfg.Methods = append(cfg.Methods, ppp.Method(m))
	}
	return cfg
}

// pppMethods are the methods that clients are asked for.
func pppMethods(cfg *config.Config) []string {
	switch {
	case len(cfg.PPPoE.Methods) > 0:
		return cfg.PPPoE.Methods
	case !cfg.Auth.Has(config.MethodUsers):
		return []string{config.MSCHAPv2, config.CHAP, config.PAP}
	}
	return []string{config.PAP} // the users' file answers no challenge
}

// resolvers are those of PPPoE clients.
func resolvers(cfg *config.Config) []netip.Addr {
	for _, set := range [][]netip.Addr{cfg.PPPoE.Resolvers, cfg.DHCP.DNS} {
		if len(set) > 0 {
			return set
		}
	}
	return []netip.Addr{cfg.LAN.Address.Addr()}
}

// takeUp restores the links of sessions that a former process began.
func (l *pppoeAccess) takeUp() (err error) {
	var ended []session.Session
	defer func() {
		for _, s := range ended {
			l.Logout(s.MAC, s.PPPoE.Session, s.Addr, pppoe.ErrNoSession)
		}
	}()
	l.table.Each(func(s session.Session) bool {
		if s.PPPoE.Session == 0 {
			return true
		}
		var state ppp.State
		if bad := json.Unmarshal(s.PPPoE.State, &state); bad != nil {
			err = fmt.Errorf("reading the PPPoE link of %s: %w", s.Key, bad)
			return false
		}
		state.Grant.Addr = s.Addr
		if taken := l.table.g.behind.claim(s.Key, s.PPPoE, s.User); taken != nil {
			l.table.g.log.Error("taking up the networks behind a PPPoE client", "client", s.Key.String(), "err", taken)
		}
		err = l.server.Restore(s.MAC, s.PPPoE.Session, state)
		if errors.Is(err, pppoe.ErrNoSession) {
			ended, err = append(ended, s), nil
		}
		return err == nil
	})
	return err
}

// Login implements pppoe.Access.
func (l *pppoeAccess) Login(ctx context.Context, r pppoe.Request) (ppp.Grant, error) {
	c, g := r.Credentials, l.table.g
	credentials := session.Credentials{
		User: c.User, Password: c.Password, Key: session.Key{MAC: r.MAC}, Port: r.Session, Circuit: r.Circuit,
		Remote: r.Remote, VLANs: g.vlansOf(r.MAC),
	}
	if c.Method != ppp.MethodPAP {
		credentials.CHAP = &session.CHAP{
			Microsoft: c.Method == ppp.MethodMSCHAPv2, ID: c.ID, Challenge: c.Challenge, Response: c.Response}
	}
	login, err := l.decide(ctx, credentials)
	if err != nil {
		return ppp.Grant{Message: rejection(err)}, err
	}
	if err := l.makeRoom(login); err != nil {
		return ppp.Grant{Message: rejection(err)}, err
	}
	undo, err := l.table.g.grantSession6(bindings.Anchor{MAC: r.MAC, Session: r.Session}, &login)
	if err != nil {
		return ppp.Grant{Message: rejection(err)}, err
	}
	grant := ppp.Grant{DNS: l.dns, InterfaceID: interfaceIDOf(login.IPv6)}
	r.State.Grant = grant
	state, err := json.Marshal(r.State)
	if err != nil {
		undo()
		return ppp.Grant{}, fmt.Errorf("keeping the PPPoE link: %w", err)
	}
	login.Attachment = session.Attachment{Circuit: shortened(r.Circuit), Remote: shortened(r.Remote),
		VLANs: credentials.VLANs}
	login.PPPoE = session.PPPoESession{Session: r.Session, MTU: uint16(r.State.PeerMRU), State: state,
		Routes: login.Routes}
	grant.Proof = login.Proof
	if grant.Addr, err = l.connect(r.MAC, login); err != nil {
		undo()
		grant.Message = unbegun(err)
	}
	return grant, err
}

// shortened returns as much of a circuit or remote ID as is kept.
func shortened(id string) string { return id[:min(len(id), session.MaxAttachment)] }

// decide checks a password, unless its sender has to wait because of wrong ones. Wrong ones are counted with
// those that came by the portal.
func (l *pppoeAccess) decide(ctx context.Context, credentials session.Credentials) (session.Login, error) {
	try, err := l.table.g.guard.Enter(
		ctx, guesses.Attempter{MAC: credentials.Key.MAC, AccessLine: accessLine(credentials)})
	if err != nil {
		return session.Login{}, err
	}
	defer try.Leave()
	if wait := try.Wait(credentials.User); wait > 0 {
		l.backedOff.Add(1)
		return session.Login{},
			session.Reject(fmt.Sprintf("too many wrong passwords: try again in %d s", int(wait/time.Second)+1))
	}
	credentials.Failures = try.Failures(credentials.User)
	login, err := l.auth.Authenticate(ctx, credentials)
	switch {
	case err == nil:
		try.Right(credentials.User)
	case errors.Is(err, session.ErrRejected):
		try.Wrong(credentials.User)
	}
	return login, err
}

// accessLine is the subscriber's line as its access node names it; empty: it does not.
func accessLine(credentials session.Credentials) string {
	if credentials.Circuit == "" && credentials.Remote == "" {
		return ""
	}
	return fmt.Sprintf("%q %q", credentials.Circuit, credentials.Remote)
}

// rejection converts the error of a failed login to the message that the client gets.
func rejection(err error) string {
	var no *session.Rejection
	switch {
	case errors.As(err, &no):
		return no.Message
	case errors.Is(err, session.ErrUnfit):
		return "this account is not for this network"
	case errors.Is(err, session.ErrMoreAsked):
		return "this account needs more than a password"
	case errors.Is(err, session.ErrSessions):
		return "this account has as many sessions as allowed"
	}
	return undecided
}

// undecided is the message for a login about which no source could decide.
const undecided = "the login could not be decided: try again later"

// unbegun returns the message for a login that was accepted but whose session could not begin. See rejection.
func unbegun(err error) string {
	if text := rejection(err); text != undecided {
		return text
	}
	return "the gateway could not begin a session: try again later"
}

// connect admits a client with the address that its login has, or else one of the pool.
func (l *pppoeAccess) connect(mac [6]byte, login session.Login) (netip.Addr, error) {
	if addr := login.Framed; addr.IsValid() {
		login.For = session.Key{MAC: mac, Addr: addr}
		_, err := l.table.Connect(login)
		if errors.Is(err, session.ErrTaken) { // the server gives the address anew: its former user has gone
			if s, found := l.table.Get(addr); !found || s.PPPoE.Session == 0 {
				return addr, err
			} else if err = l.table.Disconnect(s.Key, s.PPPoE.Session, session.NASRequest); err == nil {
				_, err = l.table.Connect(login)
			}
		}
		return addr, err
	}
	pool := l.pools[login.Pool]
	if pool == nil {
		return netip.Addr{}, fmt.Errorf("%w: the login names the pool %.60q (Framed-Pool), which pppoe.pool does not have",
			session.ErrUnfit, login.Pool)
	}
	for range pool.size() {
		addr := pool.next()
		if l.table.Taken(addr) {
			continue
		}
		login.For = session.Key{MAC: mac, Addr: addr}
		if _, err := l.table.Connect(login); !errors.Is(err, session.ErrTaken) {
			return addr, err
		}
	}
	for _, former := range l.table.Of(mac, login.User) { // which this login replaces
		if !slices.ContainsFunc(pool.ranges, func(r config.Range) bool { return r.Contains(former.Addr) }) {
			continue
		}
		login.For = former.Key
		_, err := l.table.Connect(login)
		return former.Addr, err
	}
	return netip.Addr{}, errNoAddress
}

var errNoAddress = errors.New(
	"no address is free: the login's pool (pppoe.pools, or by Framed-Pool one of pppoe.pool) is used up, and the login " +
		"has none (Framed-IP-Address)")

// Logout implements pppoe.Access.
func (l *pppoeAccess) Logout(mac [6]byte, id uint16, addr netip.Addr, reason error) {
	cause := session.LostCarrier
	if errors.Is(reason, ppp.ErrPeerClosed) {
		cause = session.UserRequest
	}
	if err := l.table.Disconnect(session.Key{MAC: mac, Addr: addr}, id, cause); err != nil &&
		!errors.Is(err, session.ErrClosed) {
		l.table.g.log.Warn("ending a PPPoE session; its client has no link, and its traffic is still let through", "err", err)
	}
}

// Connect fills in the configuration's limits.
func (t limitDefaults) Connect(login session.Login) (session.Session, error) {
	reason := t.g.cfg.UnfitForPPPoE(login.For.Addr)
	if reason == "" && t.g.isOutside(login.For.Addr) && t.g.hasAddress(login.For.Addr) {
		reason = "is an address of this machine"
	}
	if reason != "" {
		return session.Session{}, fmt.Errorf("%w: %s %s", datapath.ErrForeign, login.For.Addr, reason)
	}
	t.setDefaults(&login)
	if err := t.g.behind.claim(login.For, login.PPPoE, login.User); err != nil {
		return session.Session{}, err
	}
	s, err := t.Table.Connect(login)
	if err != nil {
		t.g.behind.remove(login.For, login.PPPoE)
	} else {
		t.g.admitted(s)
		t.g.warnOfPorts(s.Addr)
		t.g.log.Info("connected", "client", s.Key.String(), "user", s.User, "session", s.ID, "pppoe", s.PPPoE.Session)
	}
	return s, err
}

// pool hands out the addresses of a pool in turn, so that an address that became free is not soon another client's.
type pool struct {
	ranges []config.Range
	total  int

	mu        sync.Mutex
	nextIndex int // guarded by mu
}

func pools(cfg *config.Config) map[string]*pool {
	all := map[string]*pool{"": newPool(cfg.PPPoE.Pools)}
	for _, p := range cfg.PPPoE.Named {
		all[p.Name] = newPool(p.Ranges)
	}
	return all
}

func newPool(ranges []config.Range) *pool {
	p := &pool{ranges: slices.Clone(ranges)}
	for _, r := range p.ranges {
		p.total += r.Size()
	}
	return p
}

func (p *pool) size() int { return p.total }

// next is the next address; the pool must not be empty.
func (p *pool) next() netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.nextIndex
	p.nextIndex = (p.nextIndex + 1) % p.total
	for _, r := range p.ranges {
		if n := r.Size(); i >= n {
			i -= n
			continue
		}
		return r.At(i)
	}
	panic("gateway: an address beyond the pool") // cannot be
}
