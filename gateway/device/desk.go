package device

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Source decides about devices.
type Source interface {
	// Ask returns the login of a device, whose Way says how it comes in. An error that wraps session.ErrRejected means
	// that the source does not let it in, any other one that it cannot decide now.
	Ask(context.Context, session.Credentials) (session.Login, error)
}

// Table is the table of clients.
type Table interface {
	// ClientsOf returns the clients of a MAC address, with a session or without.
	ClientsOf(datapath.MAC) []session.Session
	Admit(netip.Addr, session.Login) (session.Session, error)
	// Kick ends the session of an address that has an ID.
	Kick(addr netip.Addr, id string, cause session.Cause) error
}

// Config is how a Desk works.
type Config struct {
	Sources []Source // of this machine, asked in this order, until one lets the device in
	Servers Source   // asked where none of them does; nil: none
	Roaming Roaming  // asked first about devices that were seen; nil: none
	Table   Table
	Keep    time.Duration // how long an answer holds
	Log     *slog.Logger
}

// Bounds of a desk.
const (
	atOnce     = 256     // devices that are asked about at once: each waits for a server, and then for the disk
	maxWaiting = 1 << 16 // devices that wait; others are asked about when they are seen again
	maxAnswers = 1 << 16 // answers that are kept

	retryAfter = 5 * time.Second // until a device is asked about again where nobody could answer
	retryLast  = time.Minute     // the same of a device that is inside: the time doubles up to this
	sweepEvery = time.Second
	lively     = 5 * time.Minute // a device that sent so lately is asked about at once when its time is over
)

// Desk asks sources about devices that have appeared, and lets them in. Its methods may be called at any time from
// several goroutines; those by which it is told something return at once.
type Desk struct {
	cfg Config

	mu      sync.Mutex
	answers map[datapath.MAC]*answer // guarded by mu
	here    lane                     // guarded by mu; asks Sources
	afar    lane                     // guarded by mu; asks Servers, so that no other device waits for them
	ended   bool                     // guarded by mu
	stats   Stats                    // guarded by mu
	workers sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc

	undecided, failed budget.OncePerMinute
}

// lane are devices that wait to be asked about.
type lane struct {
	sources []Source
	queue   []datapath.MAC // the first first
	working int            // goroutines
}

// Stats are counts of devices since the desk was opened.
type Stats struct {
	Asked     uint64 // sources were asked about
	Admitted  uint64 // let in
	Refused   uint64 // by all sources
	Undecided uint64 // because a source could not answer
	Ended     uint64 // whose session ended because they are let in no longer
	Dropped   uint64 // not asked about, because too many waited
}

// verdict is what became of a question.
type verdict int

const (
	unknown verdict = iota // nobody was asked, or nobody could answer
	yes
	no
)

// answer is what is known of a device.
type answer struct {
	verdict verdict
	login   session.Login // of yes
	line    line          // at which the device was when sources were asked
	moved   bool          // it has left the line of its session, and nobody could answer since
	until   time.Time     // when it no longer holds
	queued  bool          // it waits, or is being asked about
	again   bool          // it was seen meanwhile
	changed bool          // the sources may have another answer by now
	held    bool          // somebody logged it out: no that no source has said
	seen    bool          // it waits because it was seen outside
	unsure  bool          // a source of this machine could not answer
	tries   int           // how often in a row nobody could answer

	roamAfter time.Time // the device's session at another gateway may be asked for again
}

// New makes a desk.
func New(cfg Config) *Desk {
	d := &Desk{cfg: cfg, answers: map[datapath.MAC]*answer{}, here: lane{sources: cfg.Sources}}
	if cfg.Servers != nil {
		d.afar.sources = []Source{cfg.Servers}
	}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Close ends what is going on. Devices that were seen by then and not decided about stay outside.
func (d *Desk) Close() error {
	d.mu.Lock()
	d.ended, d.here.queue, d.afar.queue = true, nil, nil
	d.mu.Unlock()
	d.end()
	d.workers.Wait()
	return nil
}

// Run asks again about devices whose answer no longer holds, until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	again := ticker.Every(sweepEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			d.Sweep()
		}
	}
}

// Stats returns the counts.
func (d *Desk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Seen tells that a device is there. It is asked about where it has no session and no answer holds, and where servers
// let it in at another line.
func (d *Desk) Seen(mac datapath.MAC) {
	outside, inside := d.clients(mac)
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append(outside, inside...)
	switch a := d.answers[mac]; {
	case a != nil && !a.held && len(all) > 0 && a.isOfAnother(all[0]):
		d.enqueue(mac, true)
		a.seen = len(outside) > 0
	case len(outside) > 0:
		d.expectRoam(a, mac)
		d.enqueue(mac, false)
	}
}

// enqueue has a device asked about, or let in by an answer that holds. With anew no answer holds. d.mu is held.
func (d *Desk) enqueue(mac datapath.MAC, anew bool) {
	now, a := time.Now(), d.answers[mac]
	switch {
	case a == nil:
		d.makeRoom()
		a = &answer{}
	case a.queued:
		a.again = true
		return
	case !anew && a.verdict != yes && now.Before(a.until):
		return
	case anew:
		a.until = now
	}
	if len(d.here.queue)+len(d.afar.queue) >= maxWaiting || d.ended {
		d.stats.Dropped++
		return
	}
	d.answers[mac] = a
	a.queued, a.held, a.seen = true, false, !anew
	d.push(&d.here, mac)
}

// push has a device wait in a lane. d.mu is held.
func (d *Desk) push(l *lane, mac datapath.MAC) {
	if d.ended {
		return
	}
	l.queue = append(l.queue, mac)
	if l.working < atOnce {
		l.working++
		d.workers.Go(func() { d.work(l) })
	}
}

// makeRoom forgets an answer where there are too many. d.mu is held.
func (d *Desk) makeRoom() {
	if len(d.answers) < maxAnswers {
		return
	}
	for mac, a := range d.answers {
		if !a.queued {
			delete(d.answers, mac)
			return
		}
	}
}

// work decides about devices as long as some wait in a lane.
func (d *Desk) work(l *lane) {
	for {
		d.mu.Lock()
		if len(l.queue) == 0 {
			l.queue = nil // so that what a storm took is given back
			l.working--
			d.mu.Unlock()
			return
		}
		mac := l.queue[0]
		l.queue = l.queue[1:]
		a := d.answers[mac]
		if a == nil || a.held { // meanwhile
			d.note(mac, nil)
			d.mu.Unlock()
			continue
		}
		before := *a
		d.mu.Unlock()
		found, decided := d.decide(l, mac, before)
		d.mu.Lock()
		if a := d.answers[mac]; decided || a == nil || a.held {
			d.note(mac, found)
		} else {
			a.unsure = found.verdict == unknown
			d.push(&d.afar, mac)
		}
		d.mu.Unlock()
	}
}

// note keeps what was found out of a device; nil: it is gone. d.mu is held.
func (d *Desk) note(mac datapath.MAC, found *answer) {
	a := d.answers[mac]
	if a == nil {
		return
	}
	again, changed := a.again, a.changed
	a.queued, a.again, a.changed, a.unsure = false, false, false, false
	switch {
	case a.held: // meanwhile
	case found == nil:
		delete(d.answers, mac)
	default:
		a.verdict, a.login, a.line, a.moved = found.verdict, found.login, found.line, found.moved
		a.until, a.tries = found.until, found.tries
	}
	switch {
	case changed && !a.held:
		d.enqueue(mac, true)
		a.seen = again
	case again:
		d.enqueue(mac, false)
	}
}

// decide asks about a device unless an answer holds, lets it in or ends its session, and returns the answer; nil: the
// device is gone. It is not decided where the servers are to be asked.
func (d *Desk) decide(l *lane, mac datapath.MAC, before answer) (found *answer, decided bool) {
	outside, inside := d.clients(mac)
	if len(outside)+len(inside) == 0 {
		return nil, true
	}
	if len(inside) > 0 && !before.seen { // an address of before must not take the session back
		outside = nil
	}
	if found := d.roam(l, outside, before); found != nil {
		return found, true
	}
	id, client := "", append(outside, inside...)[0]
	moved := before.moved || before.isOfAnother(client)
	if found = &before; moved || !before.admits(len(outside)) {
		found, id = d.ask(l, client, before)
		if found.verdict != yes && l == &d.here && d.cfg.Servers != nil {
			return found, false
		}
		d.judge(found, before, client)
		found.moved = moved && found.verdict == unknown
	}
	switch found.verdict {
	case yes:
		if moved && found.login.Way == session.ByMAC {
			d.expelOthers(mac, inside, found.login.User)
		}
		for _, s := range outside {
			if v, until := d.admit(s, found.login, id); v != yes {
				found.verdict, found.until = v, until
			}
			id = "" // of one session
		}
	case no:
		for _, s := range inside {
			d.expel(s)
		}
	}
	return found, true
}

// admits reports whether an answer holds for a number of sessions more, without a question. Sources of this machine are
// asked for each session, since that costs nothing, and servers where they count what is left.
func (a answer) admits(sessions int) bool {
	l := a.login.Limits
	counted := l.SessionTimeout > 0 || l.UpBytes+l.DownBytes+l.TotalBytes > 0 || a.login.IPv6 != nil ||
		len(a.login.Networks) > 0
	return a.verdict == yes && time.Now().Before(a.until) &&
		(sessions == 0 || a.login.Way == session.ByMAC && !counted)
}

// judge counts an answer about a client, and sets how long it holds.
func (d *Desk) judge(found *answer, before answer, s session.Session) {
	hold := d.cfg.Keep
	switch found.verdict {
	case unknown:
		d.count(&d.stats.Undecided)
		hold = retryAfter
		if s.State == session.Authenticated {
			hold = min(retryAfter<<min(before.tries, 10), retryLast)
		}
		found.tries = before.tries + 1
	case no:
		d.count(&d.stats.Refused)
		d.cfg.Log.Debug("device refused", "client", s.Key.String())
	}
	found.until = time.Now().Add(hold)
}

// clients returns the clients of a MAC address that have no session, and those whose session is a device's.
func (d *Desk) clients(mac datapath.MAC) (outside, inside []session.Session) {
	for _, s := range d.cfg.Table.ClientsOf(mac) {
		switch {
		case s.State != session.Authenticated:
			outside = append(outside, s)
		case s.Way != "":
			inside = append(inside, s)
		}
	}
	return outside, inside
}

// ask asks the sources of a lane about a client. id is the ID of a session that begins with the answer, which servers
// were told.
func (d *Desk) ask(l *lane, s session.Session, before answer) (found *answer, id string) {
	if id = s.ID; id == "" {
		id = session.NewID()
	}
	c := session.Credentials{Key: s.Key, FurtherAddrs: s.FurtherAddrs, SessionID: id, CallCheck: true,
		VLANs: s.Attachment.VLANs}
	if l == &d.here {
		d.count(&d.stats.Asked)
	}
	found = &answer{verdict: no, line: lineOf(s)}
	if before.unsure {
		found.verdict = unknown
	}
	for _, source := range l.sources {
		login, err := source.Ask(d.ctx, c)
		switch {
		case err == nil:
			return &answer{verdict: yes, login: login, line: lineOf(s)}, id
		case errors.Is(err, session.ErrRejected):
		case errors.Is(err, session.ErrUnfit), errors.Is(err, session.ErrMoreAsked):
			d.failed.Do(func() {
				d.cfg.Log.Warn("a device is not let in although the server did not reject it", "client", s.Key.String(), "err", err)
			})
		default:
			found.verdict = unknown
			d.undecided.Do(func() {
				d.cfg.Log.Warn("nobody could decide on a device, which sees the portal: it is asked about again", "client",
					s.Key.String(), "err", err)
			})
		}
	}
	return found, id
}

// Later is an error that says from when on a login may be let in.
type Later interface {
	error
	Again() time.Time
}

// admit lets a client in, and returns whether it could: unknown, where the reason may pass soon. Until then an answer
// other than yes holds.
func (d *Desk) admit(s session.Session, login session.Login, id string) (verdict, time.Time) {
	login.For, login.SessionID = s.Key, id
	_, err := d.cfg.Table.Admit(s.Addr, login)
	switch {
	case err == nil:
		d.count(&d.stats.Admitted)
	case errors.Is(err, session.ErrUnknown), errors.Is(err, session.ErrMoved), errors.Is(err, session.ErrClosed):
		// it is gone, or the daemon ends
	case errors.Is(err, session.ErrSessions), errors.Is(err, session.ErrUnfit), errors.Is(err, session.ErrRejected):
		d.cfg.Log.Info("device rejected", "client", s.Key.String(), "user", login.User, "err", err)
		if later := Later(nil); errors.As(err, &later) {
			return no, later.Again()
		}
		return no, time.Now().Add(d.cfg.Keep)
	default:
		d.failed.Do(func() {
			d.cfg.Log.Error("letting a device in: it is tried again", "client", s.Key.String(), "err", err)
		})
		return unknown, time.Now().Add(retryAfter)
	}
	return yes, time.Time{}
}

// expel ends the session of a device that is let in no longer.
func (d *Desk) expel(s session.Session) {
	err := d.cfg.Table.Kick(s.Addr, s.ID, session.AdminReset)
	if err == nil || errors.Is(err, session.ErrLater) {
		d.count(&d.stats.Ended)
		return
	}
	if !errors.Is(err, session.ErrNoSession) && !errors.Is(err, session.ErrClosed) {
		d.failed.Do(func() { d.cfg.Log.Error("ending a device's session", "client", s.Key.String(), "err", err) })
	}
}

func (d *Desk) count(n *uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n++
}
