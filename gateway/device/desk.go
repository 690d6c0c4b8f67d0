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
	Sources []Source // asked in this order, until one lets the device in
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
	sweepEvery = time.Second
	lively     = 5 * time.Minute // a device that sent so lately is asked about at once when its time is over
)

// Desk asks sources about devices that have appeared, and lets them in. Its methods may be called at any time from
// several goroutines; those by which it is told something return at once.
type Desk struct {
	cfg Config

	mu      sync.Mutex
	answers map[datapath.MAC]*answer // guarded by mu
	queue   []datapath.MAC           // guarded by mu; devices that wait, the first first
	working int                      // guarded by mu; goroutines
	ended   bool                     // guarded by mu
	stats   Stats                    // guarded by mu
	workers sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc

	undecided, failed budget.OncePerMinute
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
	until   time.Time     // when it no longer holds
	queued  bool          // it waits, or is being asked about
	again   bool          // it was seen meanwhile
	held    bool          // somebody logged it out: no that no source has said
}

// New makes a desk.
func New(cfg Config) *Desk {
	d := &Desk{cfg: cfg, answers: map[datapath.MAC]*answer{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Close ends what is going on. Devices that were seen by then and not decided about stay outside.
func (d *Desk) Close() error {
	d.mu.Lock()
	d.ended, d.queue = true, nil
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

// Seen tells that a device is there and has no session. Where no answer holds, it is asked about.
func (d *Desk) Seen(mac datapath.MAC) {
	if outside, _ := d.clients(mac); len(outside) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueue(mac, false)
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
	if len(d.queue) >= maxWaiting || d.ended {
		d.stats.Dropped++
		return
	}
	d.answers[mac] = a
	a.queued = true
	d.queue = append(d.queue, mac)
	if d.working < atOnce {
		d.working++
		d.workers.Go(d.work)
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

// work decides about devices as long as some wait.
func (d *Desk) work() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.queue = nil // so that what a storm took is given back
			d.working--
			d.mu.Unlock()
			return
		}
		mac := d.queue[0]
		d.queue = d.queue[1:]
		before := *d.answers[mac]
		d.mu.Unlock()
		found := d.decide(mac, before)
		d.mu.Lock()
		d.note(mac, found)
		d.mu.Unlock()
	}
}

// note keeps what was found out of a device; nil: it is gone. d.mu is held.
func (d *Desk) note(mac datapath.MAC, found *answer) {
	a := d.answers[mac]
	again := a.again
	a.queued, a.again = false, false
	switch {
	case a.held: // meanwhile
	case found == nil:
		delete(d.answers, mac)
	default:
		a.verdict, a.login, a.until = found.verdict, found.login, found.until
	}
	if again {
		d.enqueue(mac, false)
	}
}

// decide asks about a device unless an answer holds, lets it in or ends its session, and returns the answer; nil: the
// device is gone.
func (d *Desk) decide(mac datapath.MAC, before answer) *answer {
	outside, inside := d.clients(mac)
	if len(outside)+len(inside) == 0 {
		return nil
	}
	found, id := before, ""
	if before.verdict != yes || !time.Now().Before(before.until) {
		found, id = d.ask(append(outside, inside...)[0])
	}
	switch found.verdict {
	case yes:
		for _, s := range outside {
			switch d.admit(s, found.login, id) {
			case no:
				found.verdict, found.until = no, time.Now().Add(d.cfg.Keep)
			case unknown:
				found.verdict, found.until = unknown, time.Now().Add(retryAfter)
			}
			id = "" // of one session
		}
	case no:
		for _, s := range inside {
			d.expel(s)
		}
	}
	return &found
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

// ask asks the sources about a client. id is the ID of a session that begins with the answer, which servers were told.
func (d *Desk) ask(s session.Session) (found answer, id string) {
	if id = s.ID; id == "" {
		id = session.NewID()
	}
	c := session.Credentials{Key: s.Key, FurtherAddrs: s.FurtherAddrs, SessionID: id, CallCheck: true}
	d.count(&d.stats.Asked)
	found.verdict = no
	for _, source := range d.cfg.Sources {
		login, err := source.Ask(d.ctx, c)
		switch {
		case err == nil:
			return answer{verdict: yes, login: login, until: time.Now().Add(d.cfg.Keep)}, id
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
	if found.verdict == unknown {
		d.count(&d.stats.Undecided)
		found.until = time.Now().Add(retryAfter)
		return found, id
	}
	d.count(&d.stats.Refused)
	d.cfg.Log.Debug("device refused", "client", s.Key.String())
	found.until = time.Now().Add(d.cfg.Keep)
	return found, id
}

// admit lets a client in, and returns whether it could: unknown, where the reason may pass soon.
func (d *Desk) admit(s session.Session, login session.Login, id string) verdict {
	login.For, login.SessionID = s.Key, id
	_, err := d.cfg.Table.Admit(s.Addr, login)
	switch {
	case err == nil:
		d.count(&d.stats.Admitted)
	case errors.Is(err, session.ErrUnknown), errors.Is(err, session.ErrMoved), errors.Is(err, session.ErrClosed):
		// it is gone, or the daemon ends
	case errors.Is(err, session.ErrSessions), errors.Is(err, session.ErrUnfit):
		d.cfg.Log.Info("device rejected", "client", s.Key.String(), "user", login.User, "err", err)
		return no
	default:
		d.failed.Do(func() {
			d.cfg.Log.Error("letting a device in: it is tried again", "client", s.Key.String(), "err", err)
		})
		return unknown
	}
	return yes
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
