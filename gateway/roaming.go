// Devices that go from one gateway to another.

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/device"
	"github.com/gateweigh/gateweigh/gateway/elsewhere"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// roams are the sessions of a network that other gateways have, and those that go from one gateway to another.
type roams struct {
	*elsewhere.Index
	users  *perUser
	g      *gateway
	kind   string          // of the sessions in the store
	mirror *cluster.Mirror // of this gateway's

	in, taken, out, lost, failed atomic.Uint64

	mu      sync.Mutex // guards what follows
	parted  []kept     // what other gateways were answered, the oldest first
	losing  []loss     // that wait
	working bool       // something ends them
}

// kept is what a gateway was answered that has asked for a session: it may ask again, because the answer was lost.
type kept struct {
	to, id string
	answer []byte
	at     time.Time
}

// keptFor is how long it is kept.
const keptFor = 10 * time.Second

// loss is a record of this gateway that another one has taken.
type loss struct {
	key    string
	record cluster.Record
}

// releaseRequest asks for a session of another gateway.
type releaseRequest struct {
	Addr netip.Addr `json:"addr"` // the client's there
	ID   string     `json:"id"`
}

// parting is a session that has ended for another gateway, and what is left of it.
type parting struct {
	Over   bool           `json:"over,omitempty"` // there is no such session, or nothing is left
	User   string         `json:"user"`
	Class  [][]byte       `json:"class,omitempty"`
	Way    session.Way    `json:"way,omitempty"`
	Guest  *session.Guest `json:"guest,omitempty"`
	Limits session.Limits `json:"limits"` // the rest of time and bytes
	// Sessions is how many sessions the user may have at once, as session.UserSession's Most.
	Sessions int `json:"sessions,omitempty"`
}

// partingOf returns what is left of a session at a time.
func partingOf(s session.Session, now time.Time) parting {
	if s.At(now).State != session.Authenticated {
		return parting{Over: true}
	}
	p := parting{User: s.User, Class: s.Class, Way: s.Way, Guest: s.Guest, Limits: s.Limits}
	if l := &p.Limits; l.SessionTimeout > 0 {
		l.SessionTimeout -= now.Sub(s.Began)
	}
	for _, q := range s.Quotas() {
		switch q.Quota {
		case session.UpQuota:
			p.Limits.UpBytes = q.Left
		case session.DownQuota:
			p.Limits.DownBytes = q.Left
		case session.TotalQuota:
			p.Limits.TotalBytes = q.Left
		}
	}
	return p
}

// openElsewhere follows the sessions of other gateways, and gives them those of devices that have gone there.
func (g *gateway) openElsewhere(context.Context) (o opened, err error) {
	if g.store.Store == nil {
		return o, nil
	}
	kind := sessionKind(g.cfg.Name)
	g.roams = &roams{Index: elsewhere.New(), g: g, kind: kind, mirror: g.store.mirror(g.cfg.Name)}
	g.roams.users = newPerUser(g.roams)
	g.store.Line(kind, g.table.OnLine)
	g.store.Answer("release "+kind, g.roams.release)
	stop := g.store.Follow(kind, g.roams)
	g.store.roams.Store(g.cfg.Name, g.roams)
	return opened{run: g.roams.users.run, close: func() error {
		g.store.roams.CompareAndDelete(g.cfg.Name, g.roams)
		g.store.Answer("release "+kind, nil)
		stop()
		return nil
	}}, nil
}

// sessionOf returns the session with an ID of another gateway, with a Began of this machine, and all bytes as received.
func (r *roams) sessionOf(id string) (s session.Session, known bool) {
	found, known := r.ByID(id)
	if !known {
		return s, false
	}
	shift, known := r.g.store.Shift(r.kind, found.Gateway)
	s.Key, s.ID, s.Began = found.Key, found.ID, r.g.table.Wall(found.Began.Add(shift))
	s.DownBytes = found.Bytes
	return s, known
}

// takesOver reports whether devices with a session at another gateway come in without a login.
func (g *gateway) takesOver() bool { return g.roams != nil && g.cfg.Store.Roaming != config.RoamingOff }

// roaming is asked about devices that have a session at another gateway; nil: nobody is.
func (g *gateway) roaming() device.Roaming {
	if !g.takesOver() {
		return nil
	}
	return g.roams
}

// Put takes up what another gateway has, and ends what it has taken.
func (r *roams) Put(of, key string, record cluster.Record) {
	if of == r.g.cfg.Pair.Site { // this gateway's, too
		return
	}
	if of != r.g.store.Gateway {
		r.Index.Put(of, key, record)
		return
	}
	r.lose(loss{key, record})
}

// lose has a session end that another gateway has taken. It does not wait for that.
func (r *roams) lose(l loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.losing = append(r.losing, l); !r.working {
		r.working = true
		go r.loseAll()
	}
}

// loseAll ends the sessions that other gateways have taken.
func (r *roams) loseAll() {
	for {
		r.mu.Lock()
		if r.working = len(r.losing) > 0; !r.working {
			r.losing = nil
			r.mu.Unlock()
			return
		}
		next := r.losing[0]
		r.losing = r.losing[1:]
		r.mu.Unlock()
		r.yield(next)
	}
}

// yieldAgain is how long a session goes on that the data path could not end, before the next try.
const yieldAgain = 5 * time.Second

// yield ends a session that another gateway has taken while this one was away: that one goes on with it. Until it has
// ended, the record stays the other gateway's.
func (r *roams) yield(l loss) {
	r.mirror.Yield(l.key, l.record.Version)
	s, err := session.DecodeVersioned(l.record.Content)
	if err == nil {
		err = r.g.table.Kick(s.Addr, s.ID, session.NASRequest)
	}
	if err == nil || errors.Is(err, session.ErrLater) {
		r.lost.Add(1)
		r.g.log.Info("another gateway has taken this session while this one was away", "client", s.Key.String(), "user",
			s.User, "session", s.ID, "gateway", l.record.Owner)
		return
	}
	r.mirror.Yield(l.key, 0)
	if s.ID == "" || errors.Is(err, session.ErrNoSession) || errors.Is(err, session.ErrClosed) {
		r.mirror.Compare() // it had ended: the store is told what there is instead
		return
	}
	r.g.log.Error("a session that another gateway has taken goes on here, too: it is tried again", "client",
		s.Key.String(), "user", s.User, "session", s.ID, "gateway", l.record.Owner, "err", err)
	time.AfterFunc(yieldAgain, func() { r.lose(l) })
}

// release ends a session for another gateway, to which its device has gone. The answer is a parting.
func (r *roams) release(_ context.Context, to string, body []byte) ([]byte, error) {
	c := releaseRequest{}
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("a claim that cannot be read: %w", err)
	}
	if answer := r.answered(to, c.ID); answer != nil {
		return answer, nil
	}
	now := time.Now()
	s, known := r.g.table.Get(c.Addr)
	if !known || s.ID != c.ID || s.At(now).State != session.Authenticated || s.PPPoE.Session != 0 ||
		r.g.cfg.LAN.Repeats(s.MAC) {
		return json.Marshal(parting{Over: true})
	}
	allowed := r.g.table.Allowed(s)
	ended, err := r.g.table.Release(c.Addr, c.ID, session.NASRequest)
	switch {
	case errors.Is(err, session.ErrNoSession):
		return json.Marshal(parting{Over: true})
	case err != nil && !errors.Is(err, session.ErrLater):
		return nil, err
	}
	r.out.Add(1)
	r.g.log.Info("the device has gone to another gateway", "client", s.Key.String(), "session", s.ID, "gateway", to)
	p := partingOf(ended, time.Now())
	p.Sessions = allowed
	answer, err := json.Marshal(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = append(r.parted, kept{to, c.ID, answer, now})
	return answer, err
}

// answered returns what a gateway was answered before; nil: nothing.
func (r *roams) answered(to, id string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := 0
	for old < len(r.parted) && time.Since(r.parted[old].at) > keptFor {
		old++
	}
	r.parted = slices.Delete(r.parted, 0, old)
	for _, k := range r.parted {
		if k.to == to && k.id == id {
			return k.answer
		}
	}
	return nil
}

// candidate returns the session of another gateway that a device may take over.
func (r *roams) candidate(key session.Key) (elsewhere.Session, bool) {
	addr := netip.Addr{}
	if r.g.cfg.Store.Roaming == config.RoamingByAddress {
		addr = key.Addr
	}
	list, up := r.OfMAC(key.MAC)
	s, found := elsewhere.Latest(list, addr)
	return s, found && up
}

// Elsewhere implements device.Roaming.
func (r *roams) Elsewhere(mac datapath.MAC) bool {
	list, up := r.OfMAC(mac)
	return up && len(list) > 0
}

// Ask implements device.Source: it takes a device's session over, which has ended at the other gateway when Ask
// returns.
func (r *roams) Ask(ctx context.Context, c session.Credentials) (login session.Login, err error) {
	former, found := r.candidate(c.Key)
	if !found || slices.ContainsFunc(r.g.table.ClientsOf(c.Key.MAC), func(s session.Session) bool {
		return s.State == session.Authenticated
	}) {
		return login, session.ErrRejected
	}
	body, err := json.Marshal(releaseRequest{former.Addr, former.ID})
	if err != nil {
		return login, err
	}
	var p parting
	answer, err := r.g.store.Ask(ctx, former.Gateway, "release "+r.kind, body)
	if err == nil {
		err = json.Unmarshal(answer, &p)
	} else if errors.Is(err, cluster.ErrAway) {
		p, err = r.take(ctx, former)
	}
	switch {
	case err != nil:
		r.failed.Add(1)
		return login, err
	case p.Over:
		r.End(former.ID)
		return login, fmt.Errorf("%w: its session at %s is over", session.ErrRejected, former.Gateway)
	}
	voucher := ""
	if r.g.vouchers != nil && strings.HasPrefix(p.User, session.VoucherUsers) {
		voucher = strings.TrimPrefix(p.User, session.VoucherUsers)
	}
	return session.Login{User: p.User, Class: p.Class, Guest: p.Guest, Voucher: voucher,
		Shared: p.Guest != nil, Way: r.wayHere(p.Way, c), Limits: p.Limits, Sessions: p.Sessions,
		Explicit: session.ExplicitLimits{SessionTimeout: true, IdleTimeout: true, UpBytes: true, DownBytes: true,
			TotalBytes: true, UpBps: true, DownBps: true, Connections: true},
		Former: session.Former{Gateway: former.Gateway, ID: former.ID}}, nil
}

// take takes a session of a gateway that is away, which learns that when it comes back. A session of a site stays: the
// site's other gateway takes over, and answers then.
func (r *roams) take(ctx context.Context, former elsewhere.Session) (p parting, err error) {
	store := r.g.store
	if former.Set != former.Gateway {
		return p, fmt.Errorf("%s of %s: %w", former.Gateway, former.Set, cluster.ErrAway)
	}
	record, found, err := store.Get(ctx, r.kind, former.Gateway, former.Record)
	if err != nil || !found || record.Owner != former.Gateway {
		return parting{Over: true}, err
	}
	s, err := session.DecodeVersioned(record.Content)
	shift, known := store.Shift(r.kind, former.Gateway)
	switch {
	case err != nil || s.ID != former.ID || s.State != session.Authenticated:
		return parting{Over: true}, err
	case !known:
		return p, errors.New("how the clocks of the two gateways differ is not known yet")
	}
	s.Began, s.LeaseEnd = r.g.table.Wall(s.Began.Add(shift)), time.Time{}
	if p = partingOf(s, time.Now()); p.Over {
		return p, nil
	}
	p.Sessions = -1 // nobody knows
	out, err := store.Swap(ctx, r.kind, former.Gateway, []cluster.Change{
		{Key: former.Record, Content: record.Content, Version: record.Version}})
	if err != nil {
		return p, err
	}
	if p.Over = !out[0].Done; !p.Over {
		r.taken.Add(1)
	}
	return p, nil
}

// wayHere returns how a device comes in here that came in by a way at the other gateway: by the same where this gateway
// has it for the device too, and otherwise as if it had logged in, so that no later answer ends the session.
func (r *roams) wayHere(way session.Way, c session.Credentials) session.Way {
	has := false
	switch way {
	case session.ByMAC:
		has = r.g.cfg.Devices.RADIUS
	case session.ByList:
		if f := r.g.devices.file; f != nil {
			_, err := f.Ask(context.Background(), c)
			has = err == nil
		}
	case session.Remembered:
		if known := r.g.devices.remembered.Load(); known != nil {
			_, err := known.Ask(context.Background(), c)
			has = err == nil
		}
	}
	if !has {
		return ""
	}
	return way
}

// cameFrom notes that a session goes on with one of another gateway, if it does.
func (g *gateway) cameFrom(s session.Session, former session.Former) {
	if former == (session.Former{}) {
		return
	}
	g.roams.End(former.ID)
	g.roams.in.Add(1)
	g.log.Info("the device has come from another gateway", "client", s.Key.String(), "user", s.User, "session", s.ID,
		"gateway", former.Gateway, "former", former.ID)
}
