package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/access"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// radiusTime is how long a login waits for all RADIUS servers together, retransmissions included. It is short because a
// person waits for the answer.
const radiusTime = 8 * time.Second

// radiusLimit bounds the wait for all RADIUS servers. It is longer than radiusTime where radius.timeout is so long
// that one packet to each takes longer: the operator's servers need it, for example to ask somebody's telephone.
func radiusLimit(r config.RADIUS) time.Duration {
	return max(radiusTime, time.Duration(len(r.Servers()))*(r.Timeout+r.Timeout/10)) // waits vary by a tenth
}

// retransmissions warns of retransmissions to RADIUS servers that no login waits for, where the file asks for them.
// Accounting sends them.
func (s *survey) retransmissions() {
	const timeout, retries = "radius.timeout", "radius.retries"
	r := s.RADIUS
	key := retries
	switch {
	case !s.UsesRADIUS() || !s.IsSet(timeout) && !s.IsSet(retries):
		return
	case !s.IsSet(retries):
		key = timeout
	}
	limit, servers := radiusLimit(r), time.Duration(len(r.Servers()))
	waits, sum, fit := radius.RetransmitWaits(r.Timeout, r.Retries), time.Duration(0), 0
	for _, w := range waits {
		if sum += w; (sum+sum/10)*servers < limit { // waits vary by a tenth
			fit++
		}
	}
	if fit == r.Retries {
		return
	}
	each := ""
	if servers > 1 {
		each = fmt.Sprintf(", %s for each of %d", limit/servers, servers)
	}
	s.addFinding(Warning,
		"%s: a login sends %d of %d packets to a server: it waits %s for all RADIUS servers%s, and the last "+
			"would be sent after %s ± 10 %% (radius.timeout = %q, then twice the last wait, at most %s; radius.retries = %d); "+
			"set radius.retries = %d, or a shorter radius.timeout",
		s.LineOf(key), fit+1, r.Retries+1, limit, each, addends(waits, sum), r.Timeout, radius.LongestWait(r.Timeout),
		r.Retries, fit)
}

// addends writes a sum of durations with its terms: "2s + 4s + 7 × 16s = 1m58s".
func addends(waits []time.Duration, sum time.Duration) string {
	var parts []string
	for i := 0; i < len(waits); {
		n := 1
		for i+n < len(waits) && waits[i+n] == waits[i] {
			n++
		}
		part := waits[i].String()
		if n > 1 {
			part = fmt.Sprintf("%d × %s", n, part)
		}
		parts = append(parts, part)
		i += n
	}
	if text := strings.Join(parts, " + "); len(waits) > 1 {
		return text + " = " + sum.String()
	}
	return sum.String()
}

// authenticator returns the sources that decide about logins, and the users' file, which is nil where it is not used.
// RADIUS is asked first about names without a local account, so that their right passwords need not wait for a hash.
func (g *gateway) authenticator() (sources access.Sources, accounts *users.Accounts, err error) {
	if g.cfg.Auth.Has(config.MethodRADIUS) {
		sources = append(sources, access.Remote{Servers: attachedServers{g}, Limit: radiusLimit(g.cfg.RADIUS)})
	}
	if g.cfg.Auth.Has(config.MethodUsers) {
		if accounts, err = users.Open(g.cfg.Users.File, g.log); err != nil {
			return nil, nil, err
		}
		sources = append(sources, access.Hashed{Accounts: accounts})
	}
	if g.cfg.Auth.Has(config.MethodVoucher) {
		sources = append(sources, access.Vouchers{Book: g.vouchers})
	}
	return sources, accounts, nil
}

// attachedServers are the RADIUS servers, which are told where a client on Ethernet is attached.
type attachedServers struct{ g *gateway }

// Authenticate implements access.Source.
func (a attachedServers) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	if c.Port == 0 {
		if s, known := a.g.table.Get(c.Key.Addr); known && s.MAC == c.Key.MAC {
			c.Circuit, c.Remote, c.VLANs = s.Attachment.Circuit, s.Attachment.Remote, s.Attachment.VLANs
		}
	}
	return a.g.radius.Authenticate(ctx, c)
}

// limitDefaults wraps the table of sessions: a login gets the configuration's limits where it has none of its own.
type limitDefaults struct {
	*session.Table
	g        *gateway
	operator bool // the logins are an operator's, with the limits given there and no others
}

// Admit fills in the configuration's limits, unless an operator logs the client in.
func (t limitDefaults) Admit(addr netip.Addr, login session.Login) (session.Session, error) {
	giveBack, err := t.g.takePlace(&login)
	if err != nil {
		return session.Session{}, err
	}
	t.setDefaults(&login)
	giveBackDay, err := t.g.takeDay(&login, t.keyOf(addr, login))
	if err != nil {
		giveBack()
		return session.Session{}, err
	}
	undo, err := t.g.grant(addr.Unmap(), &login)
	if err != nil {
		giveBackDay()
		giveBack()
		return session.Session{}, err
	}
	s, err := t.Table.Admit(addr, login)
	if err != nil {
		undo()
		giveBackDay()
		giveBack()
		return s, err
	}
	t.g.admitted(s)
	t.g.endVisits(s)
	t.g.warnOfPorts(s.Addr)
	t.g.cameFrom(s, login.Former)
	if !t.operator {
		t.g.remember(s, login)
	}
	t.g.log.Info("admitted", slices.Concat([]any{"client", s.Key.String(), "user", s.User, "session", s.ID}, way(s),
		said(s.Guest))...)
	t.g.shareDay(s)
	return s, t.g.sharePlace(login)
}

// keyOf is the client of a login.
func (t limitDefaults) keyOf(addr netip.Addr, login session.Login) session.Key {
	if login.For != (session.Key{}) {
		return login.For
	}
	s, _ := t.Table.Get(addr)
	return s.Key
}

// way is how a device came in without a login, for the log.
func way(s session.Session) []any {
	if s.Way == "" {
		return nil
	}
	return []any{"way", s.Way}
}

// End ends a session for a person or an operator, who do not want the device in again at once.
func (t limitDefaults) End(addr netip.Addr, cause session.Cause) (session.Session, error) {
	t.g.leaveOut(addr.Unmap())
	return t.Table.End(addr, cause)
}

// Get tells too that the client of a request is there.
func (t limitDefaults) Get(addr netip.Addr) (session.Session, bool) {
	s, known := t.Table.Get(addr)
	if known && !t.operator && s.State != session.Authenticated {
		t.g.seen(s.MAC)
	}
	return s, known
}

// setDefaults gives a login the limits that it lacks, and an operator's only the time between updates.
func (t limitDefaults) setDefaults(login *session.Login) {
	l, given, d := &login.Limits, login.Explicit, t.g.cfg.Limits
	if t.g.accounts() {
		l.Interim = cmp.Or(l.Interim, t.g.cfg.RADIUS.Interim)
	}
	if t.operator {
		return
	}
	setDefault(&l.SessionTimeout, given.SessionTimeout, d.SessionTimeout)
	// a household may be idle on its line, and nobody is at a television to log it in again
	idle := login.PPPoE.Session != 0 || login.Way == session.ByMAC || login.Way == session.ByList
	if !idle || d.IdleTimeout != config.DefaultIdle {
		setDefault(&l.IdleTimeout, given.IdleTimeout, d.IdleTimeout)
	}
	setDefault(&l.UpBps, given.UpBps, d.UpRate)
	setDefault(&l.DownBps, given.DownBps, d.DownRate)
	setDefault(&l.Connections, given.Connections, uint32(max(0, d.Connections)))
	setDefault(&l.UpBytes, given.UpBytes, d.UpQuota)
	setDefault(&l.DownBytes, given.DownBytes, d.DownQuota)
	setDefault(&l.TotalBytes, given.TotalBytes, d.TotalQuota)
	if !login.Shared {
		login.Sessions = cmp.Or(login.Sessions, d.SessionsPerUser)
	}
}

// setDefault sets a limit that a login was not given to its default.
func setDefault[T comparable](limit *T, given bool, normal T) {
	if !given {
		*limit = cmp.Or(*limit, normal)
	}
}

// Lease gives an address to a client that an operator logs in, if clients can have it.
func (t limitDefaults) Lease(key session.Key, hostname string, end time.Time) error {
	lan := t.g.cfg.LAN
	if reason := lan.Unleasable(key.Addr); reason != "" && !key.Addr.Is6() {
		return fmt.Errorf("%w: %s %s", datapath.ErrForeign, key.Addr, reason)
	}
	ownLinks, err := net.InterfaceByName(lan.Interface)
	if mac := net.HardwareAddr(key.MAC[:]); key.MAC == (datapath.MAC{}) ||
		err == nil && slices.Equal(mac, ownLinks.HardwareAddr) {
		return fmt.Errorf("no client's MAC: %s is nobody's, or the gateway's own", mac)
	}
	if key.Addr.Is6() {
		return t.g.claim6(key)
	}
	return t.Table.Lease(key, hostname, end)
}
