package flowlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// Holder is the device, the user and the session that had an address.
type Holder struct {
	MAC           string
	User, Session string
}

// Config is the configuration of a log.
type Config struct {
	Folder   string
	KeepFor  time.Duration  // of closed files, since their last line
	MaxBytes uint64         // bytes of all files; 0: any number
	IPFIX    netip.AddrPort // of a collector; zero: none

	Interface string       // of the LAN, by which other gateways know that this one needs the kernel's settings
	LAN       netip.Prefix // of the clients
	Gateway   netip.Addr   // its address there
	// Behind reports whether an address outside the LAN is a client's, of a network behind one; nil: none is.
	IsBehindClient func(netip.Addr) bool
	// Who returns who has had an address at least since a time; what is unknown is empty. A zero time is unknown too.
	HolderOf func(addr netip.Addr, since time.Time) Holder
	// Aside has the traffic that connection tracking does not see; nil: it sees all.
	Bypassed datapath.BypassCounter
	// Gone reports whether the gateway was detached under the daemon: the kernel then no longer tracks for the
	// log. nil: it never is.
	IsDetached func() bool
	Log        *slog.Logger
}

// NotePath is the path of the note for Undo.
func (c Config) NotePath() string { return NoteIn(c.Folder) }

// NoteIn is the path of the note for Undo of a log in a folder.
func NoteIn(folder string) string { return filepath.Join(folder, "kernel-settings") }

// Sizes and times, changed by tests.
var (
	batchTime  = time.Second
	rotateSize = int64(64 << 20)
	rotateTime = time.Hour
	sayTime    = time.Minute
)

// bufferBytes holds what the kernel reports while the log is not read: about 100,000 events. Tests change it.
var bufferBytes = 128 << 20

// pendingBytes bounds lines that wait for the disk.
const pendingBytes = 32 << 20

// Stats counts since the log was opened.
type Stats struct {
	Started, Ended uint64 // flows
	Lost           uint64 // lines that could not be written
	Missed         uint64 // overflows of the kernel's reports, each repaired by a listing
	Unsent         uint64 // messages that could not be sent to the collector
	Restored       uint64 // times that the kernel's rule was missing or changed
}

// id identifies a connection that exists: its first direction and zone.
type id struct {
	orig conntrack.Tuple
	zone uint16
}

// openFlow is a flow whose start was written, and its end not yet.
type openFlow struct {
	client netip.Addr
	start  time.Time
	holder Holder
}

// Log is a running log.
type Log struct {
	cfg     Config
	events  *conntrack.Events
	collect *exporter // nil: none

	open map[id]openFlow // of Run's goroutine
	// rule is the digest of the kernel's rule, as this process made it, and ruleAt the generation of all rules in which it
	// was last so; after Open, of the writer.
	rule   [32]byte
	ruleAt uint32

	mu      sync.Mutex
	lines   []byte // that wait for the disk
	waiting uint64 // number of lines
	ending  []endedFlow
	ended   []Flow // that wait for the collector
	stats   Stats

	out    *file // of the writer
	saidAt time.Time
	closed chan struct{} // a file waits for being packed
}

// Open begins a log: the kernel tracks connections, and those that there are already begin now.
func Open(cfg Config) (*Log, error) {
	if err := os.MkdirAll(cfg.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the flow log's folder: %w", err)
	}
	l := &Log{cfg: cfg, open: map[id]openFlow{}, closed: make(chan struct{}, 1)}
	var err error
	if l.out, err = create(cfg.Folder, time.Now()); err != nil {
		return nil, err
	}
	l.pack() // what a former daemon left
	if cfg.IPFIX.IsValid() {
		l.collect, err = dialCollector(cfg.IPFIX)
	}
	if err == nil {
		l.events, err = conntrack.Listen(bufferBytes)
	}
	if err == nil {
		err = l.track()
	}
	if err == nil {
		err = l.inherit()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends the log and has the kernel track connections as before. Flows that are open have their end recorded by the
// next log, if they exist by then.
func (l *Log) Close() error {
	errs := []error{Undo(l.cfg.NotePath(), l.cfg.Interface), l.out.Close()}
	if l.events != nil {
		errs = append(errs, l.events.Close())
	}
	if l.collect != nil {
		errs = append(errs, l.collect.conn.Close())
	}
	return errors.Join(errs...)
}

// Stats returns the counts.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Run records until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	writing, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.write(writing) })
	running.Go(func() { l.tidy(writing) })
	err := l.events.Follow(ctx, l.recordStart, l.finished, l.findMissed)
	stop()
	running.Wait()
	l.flush(time.Now())
	return err
}

// recordStart records the start of a flow that was reported; listed that of one found in a listing, which
// may have begun at any time.
func (l *Log) recordStart(c conntrack.Connection) {
	instant := c.Reported
	if instant.IsZero() {
		instant = time.Now().UTC()
	}
	l.addFlow(c, instant)
}
func (l *Log) listed(c conntrack.Connection) { l.addFlow(c, time.Time{}) }

// addFlow records the start of a flow, unless it is known. at is when it began, if the kernel does not say.
func (l *Log) addFlow(c conntrack.Connection, instant time.Time) {
	f, isOurs := l.flow(c)
	key := id{c.Orig, c.Zone}
	if _, known := l.open[key]; known || !isOurs {
		return
	}
	f = l.start(f, instant)
	l.open[key] = openFlow{f.Client.Addr(), f.Start, Holder{f.MAC, f.User, f.Session}}
	l.add(f, true, false)
}

// flow converts a connection to a flow. A known flow keeps its client, even if networks behind clients have changed
// since.
func (l *Log) flow(c conntrack.Connection) (Flow, bool) {
	before, known := l.open[id{c.Orig, c.Zone}]
	return flowOf(c, func(a netip.Addr) bool {
		switch {
		case known:
			return a == before.client
		case l.cfg.LAN.Contains(a):
			return a != l.cfg.Gateway
		}
		return l.cfg.IsBehindClient != nil && l.cfg.IsBehindClient(a)
	}, l.cfg.Gateway)
}

// start returns a flow as its start line has it.
func (l *Log) start(f Flow, instant time.Time) Flow {
	if f.Start.IsZero() {
		f.Start = instant
	}
	holder := l.cfg.HolderOf(f.Client.Addr(), f.Start)
	if f.Start.IsZero() {
		f.Start = time.Now().UTC()
	}
	f.Event, f.End, f.MAC, f.User, f.Session = Begins, time.Time{}, holder.MAC, holder.User, holder.Session
	f.UpBytes, f.UpPkts, f.DownBytes, f.DownPkts = 0, 0, 0, 0
	return f
}

// finished records the end of a flow, also of one whose start was missed.
func (l *Log) finished(c conntrack.Connection) {
	f, isOurs := l.flow(c)
	if !isOurs {
		return
	}
	key := id{c.Orig, c.Zone}
	before, known := l.open[key]
	if !known {
		s := l.start(f, time.Time{})
		before = openFlow{s.Client.Addr(), s.Start, Holder{s.MAC, s.User, s.Session}}
	}
	delete(l.open, key)
	// As in the line of the start, where the kernel's report of it has the event's time, or none.
	f.Event, f.Start = Ends, before.start
	if f.End.IsZero() {
		f.End = time.Now().UTC()
	}
	f.MAC, f.User, f.Session = before.holder.MAC, before.holder.User, before.holder.Session
	if l.cfg.Bypassed == nil {
		l.add(f, !known, true)
		return
	}
	l.await(endedFlow{f, named(c), !known})
}

// findMissed finds the beginnings of which the report was lost.
func (l *Log) findMissed() error {
	l.mu.Lock()
	l.stats.Missed++
	l.mu.Unlock()
	return conntrack.List(l.listed)
}

// add has a line written, and the end of a flow sent.
func (l *Log) add(f Flow, started, ended bool) {
	line := f.line()
	l.mu.Lock()
	defer l.mu.Unlock()
	if started {
		l.stats.Started++
	}
	if ended {
		l.stats.Ended++
		if l.collect != nil {
			l.ended = append(l.ended, f)
		}
	}
	if len(l.lines)+len(line) > pendingBytes {
		l.stats.Lost++
		return
	}
	l.lines, l.waiting = append(l.lines, line...), l.waiting+1
}

// write writes lines once in a while.
func (l *Log) write(ctx context.Context) {
	tick := time.NewTicker(batchTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.flush(now)
			l.keepTracking()
		}
	}
}

// flush writes the waiting lines, and begins another file where the present one is large or old. Lines that cannot be
// written wait while there is room, and are lost then.
func (l *Log) flush(now time.Time) {
	l.complete()
	l.mu.Lock()
	lines, n, ended := l.lines, l.waiting, l.ended
	l.lines, l.waiting, l.ended = nil, 0, nil
	l.mu.Unlock()
	if len(ended) > 0 {
		if err := l.collect.export(ended, now); err != nil {
			l.mu.Lock()
			l.stats.Unsent++
			l.mu.Unlock()
		}
	}
	if len(lines) > 0 {
		if err := l.out.appendLines(lines); err != nil {
			l.unwritten(lines, n, err)
			return
		}
	}
	if l.out.goodBytes >= rotateSize || l.out.goodBytes > 0 && now.Sub(l.out.began) >= rotateTime {
		if err := l.rotate(now); err != nil && l.logDue() {
			l.cfg.Log.Error("beginning another file of the flow log; the present one grows", "err", err)
		}
	}
}

// unwritten puts lines back, or counts them as lost where too many wait.
func (l *Log) unwritten(lines []byte, n uint64, err error) {
	l.mu.Lock()
	if len(lines)+len(l.lines) <= pendingBytes {
		l.lines, l.waiting = append(lines, l.lines...), n+l.waiting
	} else {
		l.stats.Lost += n
	}
	lost, waiting := l.stats.Lost, l.waiting
	l.mu.Unlock()
	l.pack() // retention may make room
	if l.logDue() {
		l.cfg.Log.Error("the flow log cannot be written: make room on its disk, or lower flowlog.most", "folder",
			l.cfg.Folder, "lines lost", lost, "waiting", waiting, "err", err)
	}
}

// logDue reports whether nothing was said for a minute, and has it said now.
func (l *Log) logDue() bool {
	if time.Since(l.saidAt) < sayTime {
		return false
	}
	l.saidAt = time.Now()
	return true
}

func (l *Log) rotate(now time.Time) error {
	next, err := create(l.cfg.Folder, now)
	if err != nil {
		return err
	}
	err = l.out.Close()
	l.mu.Lock()
	l.out = next
	l.mu.Unlock()
	l.pack()
	return err
}

// pack has closed files packed, and old ones removed.
func (l *Log) pack() {
	select {
	case l.closed <- struct{}{}:
	default:
	}
}

// tidy packs and removes files when told, and once a minute.
func (l *Log) tidy(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.closed:
		case <-tick.C:
		}
		l.mu.Lock()
		current := l.out.base
		l.mu.Unlock()
		if err := tidy(ctx, l.cfg, current, time.Now()); err != nil {
			l.cfg.Log.Error("keeping the flow log's files in order; trying again within a minute", "err", err)
		}
	}
}

// tidy packs every file but the current one, and removes the oldest beyond age and size. Removal comes first, because
// packing needs room.
func tidy(ctx context.Context, cfg Config, current string, now time.Time) error {
	all, err := segments(cfg.Folder)
	if err != nil {
		return err
	}
	var total uint64
	for _, s := range all {
		total += uint64(s.bytes)
	}
	var errs []error
	for _, s := range all {
		if s.base == current || ctx.Err() != nil {
			continue
		}
		if now.Sub(s.changedAt) > cfg.KeepFor || cfg.MaxBytes > 0 && total > cfg.MaxBytes {
			total -= uint64(s.bytes)
			errs = append(errs, s.remove())
		} else if !s.packed {
			errs = append(errs, pack(s.base))
		}
	}
	return errors.Join(errs...)
}

// remove removes a file in all its forms.
func (s segment) remove() error {
	var errs []error
	for _, end := range []string{plainEnd, packedEnd, indexEnd} {
		if err := os.Remove(s.base + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing what is old of the flow log: %w", err))
		}
	}
	return errors.Join(errs...)
}
