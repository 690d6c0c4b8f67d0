package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/due"
)

// Times at which events that nobody confirmed are tried again.
const (
	againFirst = 2 * time.Second // doubled by each further failure, up to
	againMost  = 30 * time.Second
	// refusedMost is how often an event may fail, while others are confirmed, until its session's events are set aside.
	refusedMost = 5
	asideEvery  = 10 * time.Minute // between attempts then
	// asideMost bounds the events that Pending leaves out because they were set aside.
	asideMost = 1 << 16
	// readMost bounds the sessions whose events are in memory.
	readMost = 1 << 17
)

// outbox hands out the events of a file. Of a session's events only the oldest is handed out, until it is
// done, so that servers have them in order; those of other sessions do not wait for it.
//
//	      read            Take               Done
//	file ─────▶ ready ──────────▶ taken ────────────▶ deleted; the session's next: ready
//	                               │  ▲
//	                         Later ▼  │ Take again
//	                              due: after seconds, or minutes once set aside
type outbox struct {
	nextNumber uint64                    // events with lower numbers have been read
	sessions   map[string]*sessionEvents // with events that were read and are not done, by ID
	ready      []*sessionEvents          // whose oldest event was never tried; oldest first
	due        due.Queue[*sessionEvents] // whose oldest event is to be tried again
	confirmed  time.Time                 // when an event was last done
	setAside   int                       // events that are set aside
	changed    chan struct{}             // closed when there may be more to take
}

// sessionEvents are the events of one session that are read from the store and not confirmed yet.
type sessionEvents struct {
	id       string
	queue    []pendingEvent // the oldest first; never empty
	since    time.Time      // when the oldest was handed out first, or last failed
	tries    int            // failed attempts to have the oldest event confirmed
	refused  int            // how many of these tries failed while events of other sessions were confirmed
	setAside bool
	retryAt  time.Time // when to try again

	due.Place // its place in outbox.due
}

// Before implements due.Item.
func (l *sessionEvents) Before(other *sessionEvents) bool { return l.retryAt.Before(other.retryAt) }

// pendingEvent is an event that is not confirmed yet.
type pendingEvent struct {
	number uint64
	update bool // a later event of the session says all that it says
}

func newOutbox() outbox {
	return outbox{sessions: map[string]*sessionEvents{}, changed: make(chan struct{})}
}

// notify wakes the callers that wait for events. The journal's mu is held.
func (o *outbox) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Take returns an event that is to be accounted, and waits for one: the oldest that was never tried, or
// with again one that Later was called for and whose time has come. Until Done or Later no other event of
// its session is returned. Events are on the disk before they are returned. They must be consumed even where
// nothing is accounted: when too many are left, no client is admitted. Errors are ctx's cause and ErrClosed.
func (t *Table) Take(ctx context.Context, again bool) (Event, error) {
	for {
		if err := t.holdOpen(); err != nil {
			return Event{}, err
		}
		e, changed, wait, err := t.journal.handOut(again)
		t.openLock.RUnlock()
		if err != nil || e.number != 0 {
			return t.dated(e), err
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-t.journal.closed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		timer.Stop()
		if err != nil {
			return Event{}, err
		}
	}
}

// dated returns an event with its times by the present wall clock. Whole seconds are added, so that an event that is
// sent twice is the same each time.
func (t *Table) dated(e Event) Event {
	shift := t.clock.time(0).Sub(t.clock.inFile(0)).Round(time.Second)
	for _, moment := range []*time.Time{&e.At, &e.Began, &e.Seen, &e.LeasedAt, &e.LeaseEnd} {
		if !moment.IsZero() {
			*moment = moment.Add(shift)
		}
	}
	return e
}

// Done records that an event has been accounted; it is then not returned again. Calling it twice does no harm. It does
// not wait for the disk: after a crash in the few milliseconds until a start or an end is written, or in the next
// second for an update, the same event is returned once more.
func (t *Table) Done(e Event) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	if e.number == 0 {
		return errors.New("accounted an event that Take never returned")
	}
	return t.journal.accounted(e)
}

// Later records that an event which Take returned was not confirmed: it will be tried again, after seconds.
// Where others were confirmed meanwhile, several times, the events of its session are set aside: they are
// tried again every ten minutes, and Pending leaves them out. It reports whether that has just happened.
func (t *Table) Later(e Event) (aside bool) {
	j := t.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.outbox.sessions[e.ID]
	if l == nil || l.Queued() || l.queue[0].number != e.number {
		return false
	}
	return j.outbox.later(l)
}

func (o *outbox) later(l *sessionEvents) (asideNow bool) {
	l.tries++
	if o.confirmed.After(l.since) {
		l.refused++
	}
	l.since = time.Now()
	wait := min(againFirst<<min(l.tries-1, 8), againMost)
	if l.refused >= refusedMost {
		wait, asideNow = asideEvery, !l.setAside
	}
	if asideNow {
		l.setAside = true
		o.setAside += len(l.queue)
	}
	l.retryAt = l.since.Add(wait)
	o.due.Put(l)
	o.notify()
	return asideNow
}

// handOut returns an event as Take does, or the zero Event, a channel that is closed when there may be one, and the
// time after which there may be one all the same.
func (j *journal) handOut(again bool) (e Event, changed <-chan struct{}, wait time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := &j.outbox
	l, wait := o.first(again)
	// Read the store with mu held: an event stays in done until no later reading can contain it.
	switch {
	case l != nil:
		e, err = j.event(l.queue[0].number)
	case !again:
		e, l, err = j.readOn()
	}
	if err != nil {
		return Event{}, nil, 0, fmt.Errorf("read the outbox of sessions: %w", err)
	}
	if l != nil && l.tries == 0 {
		l.since = time.Now()
	}
	return e, o.changed, wait, nil
}

// first removes from ready or due the session whose event is to be taken; nil: none is there now, and the
// time until there is one.
func (o *outbox) first(again bool) (l *sessionEvents, wait time.Duration) {
	const forLong = time.Hour
	if !again && len(o.ready) > 0 {
		l, o.ready = o.ready[0], o.ready[1:]
		return l, 0
	}
	l = o.due.First()
	if !again || l == nil {
		return nil, forLong
	}
	if wait = time.Until(l.retryAt); wait > 0 {
		return nil, wait
	}
	o.due.Remove(l)
	return l, 0
}

// event reads the event of a number; it is an error where there is none.
func (j *journal) event(number uint64) (e Event, err error) {
	err = j.store.Events(number, func(n uint64, record []byte) (bool, error) {
		if n == number {
			e, err = eventOf(n, record)
		}
		return false, err
	})
	if err == nil && e.number == 0 {
		err = fmt.Errorf("event %d: %w", number, ErrDamaged)
	}
	return e, err
}

// readOn reads events of the store until one is the oldest of its session.
func (j *journal) readOn() (first Event, waiting *sessionEvents, err error) {
	o := &j.outbox
	if len(o.sessions) >= readMost {
		return Event{}, nil, nil
	}
	err = j.store.Events(o.nextNumber, func(number uint64, record []byte) (bool, error) {
		e, err := eventOf(number, record)
		if err != nil {
			return false, err
		}
		o.nextNumber = number + 1
		one := pendingEvent{number, e.Kind == Updated}
		l := o.sessions[e.ID]
		if l == nil {
			waiting = &sessionEvents{id: e.ID, queue: []pendingEvent{one}}
			first, o.sessions[e.ID] = e, waiting
			return false, nil
		}
		l.queue = append(l.queue, one)
		if l.setAside {
			o.setAside++
			j.supersede(l)
		}
		return true, nil
	})
	return first, waiting, err
}

// supersede leaves out interim updates of a session that is set aside: its newest event contains their counts.
func (j *journal) supersede(l *sessionEvents) {
	for i := len(l.queue) - 2; i >= 0; i-- {
		if trying := i == 0 && !l.Queued(); l.queue[i].update && !trying {
			j.delete(l.queue[i].number)
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			j.outbox.setAside--
		}
	}
}

// accounted marks an event as deleted, if it is there. An update is deleted within a second, any other event at once.
func (j *journal) accounted(e Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outbox.done(e)
	found := false
	err := j.store.Events(
		e.number, func(number uint64, _ []byte) (bool, error) { found = number == e.number; return false, nil })
	if found {
		j.delete(e.number)
		if e.Kind != Updated || len(j.deleted) >= deletedMax {
			j.signal()
		}
	}
	return err
}

// delete marks an event as deleted. The next write removes it from the store. mu is held.
func (j *journal) delete(number uint64) {
	j.deleted[number] = struct{}{}
	j.arm()
}

// done removes an event of a session from the outbox. The session's next event is ready then.
func (o *outbox) done(e Event) {
	l := o.sessions[e.ID]
	if l == nil || l.queue[0].number != e.number || l.Queued() {
		return
	}
	o.confirmed = time.Now()
	if l.setAside {
		o.setAside -= len(l.queue)
	}
	l.queue = l.queue[1:]
	l.tries, l.refused, l.setAside = 0, 0, false
	if len(l.queue) == 0 {
		delete(o.sessions, e.ID)
	} else {
		o.ready = append(o.ready, l)
	}
	o.notify()
}

// StartAgain reports the start of each session a second time, dated now, because servers were told that all sessions
// had ended.
func (t *Table) StartAgain() error {
	for _, id := range t.sessions() {
		if err := t.startAgain(id); err != nil {
			return err
		}
	}
	return t.journal.sync()
}

func (t *Table) startAgain(id datapath.ID) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	c := t.holdID(id)
	if c == nil {
		return nil
	}
	defer t.release(c)
	if c.state == Authenticated {
		started := t.event(Started, &c.entry, "", t.clock.now())
		t.journal.writeLater(change{id: id, record: t.record(&c.entry), events: [][]byte{started}})
	}
	return nil
}

// Pending returns the number of events that are neither Done nor set aside, including those not yet
// written.
func (t *Table) Pending() int { return t.journal.backlogSize() }

// Aside returns the number of events that are set aside.
func (t *Table) Aside() int {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return t.journal.outbox.setAside
}
