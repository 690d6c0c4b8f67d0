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

// Holder is the device, the user and the session that have an address.
type Holder struct {
	MAC           string
	User, Session string
}

// Config is the configuration of a log.
type Config struct {
	Folder   string
	KeepFor  time.Duration  // how long a closed file stays after its last change
	MaxBytes uint64         // largest size of all files together; 0: any
	IPFIX    netip.AddrPort // address of a collector; zero: none

	Interface string       // the LAN's; it identifies this gateway among those that share the kernel's settings
	LAN       netip.Prefix // clients' addresses
	Gateway   netip.Addr   // the gateway's address in LAN
	// Gateway6 is the gateway's IPv6 address in the LAN; zero: clients have no IPv6.
	Gateway6 netip.Addr
	// IsClient6 reports whether an IPv6 address is a client's; nil: none is.
	IsClient6 func(netip.Addr) bool
	// IsBehindClient reports whether an address outside the LAN is in a network behind a client; nil: none is.
	IsBehindClient func(netip.Addr) bool
	// HolderOf returns the device, user and session that have had an address since a time or longer. Unknown fields are
	// empty; with a zero time all are.
	HolderOf func(addr netip.Addr, since time.Time) Holder
	// Bypassed counts the traffic that bypasses connection tracking; nil: none does.
	Bypassed datapath.BypassCounter
	// IsDetached reports whether the gateway was detached while the daemon runs: the log then removes its rule, and the
	// kernel tracks no more connections for it. nil: never.
	IsDetached func() bool
	Log        *slog.Logger
}

// NotePath returns the path of the file with the kernel's former settings, for Undo.
func (c Config) NotePath() string { return NoteIn(c.Folder) }

// NoteIn returns NotePath for a log in a folder.
func NoteIn(folder string) string { return filepath.Join(folder, "kernel-settings") }

// Intervals and limits, which tests change.
var (
	batchTime   = time.Second
	rotateSize  = int64(64 << 20)
	rotateTime  = time.Hour
	logInterval = time.Minute
)

// bufferBytes is the size of the buffer for the kernel's reports, about 100,000 of them. Tests change it.
var bufferBytes = 128 << 20

// pendingBytes bounds the lines that wait for the disk.
const pendingBytes = 32 << 20

// Stats counts since the log was opened.
type Stats struct {
	Started, Ended uint64 // flows
	Lost           uint64 // lines that could not be written
	Missed         uint64 // overflows of the buffer for the kernel's reports, each repaired by listing all connections
	Unsent         uint64 // failures to send flows to the collector
	Restored       uint64 // repairs of the kernel's rule, which others had removed or changed
}

// connID identifies a connection that exists: its first direction and zone.
type connID struct {
	orig conntrack.Tuple
	zone uint16
}

// openFlow is a flow whose start is recorded and whose end is not.
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

	open map[connID]openFlow // used by Run's goroutine only
	// rules has the digests of the kernel's rules that this process made. ruleGeneration is the last generation of the
	// ruleset in which they were unchanged. After Open only the writer uses them.
	rules          digests
	ruleGeneration uint32

	mu      sync.Mutex
	lines   []byte // lines that wait for the disk
	waiting uint64 // number of these lines
	ending  []endedFlow
	ended   []Flow // flows that wait for the collector
	stats   Stats

	out      *file // used by the writer only; mu guards changes of the pointer
	loggedAt time.Time
	wake     chan struct{} // wakes tidy
}

// Open begins a log. It makes the kernel track connections, and records the start of existing ones.
func Open(cfg Config) (*Log, error) {
	if err := os.MkdirAll(cfg.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the flow log's folder: %w", err)
	}
	log := &Log{cfg: cfg, open: map[connID]openFlow{}, wake: make(chan struct{}, 1)}
	var err error
	if log.out, err = create(cfg.Folder, time.Now()); err != nil {
		return nil, err
	}
	log.wakeTidy() // for files that a former daemon left unpacked
	if cfg.IPFIX.IsValid() {
		log.collect, err = dialCollector(cfg.IPFIX)
	}
	if err == nil {
		log.events, err = conntrack.Listen(bufferBytes)
	}
	if err == nil {
		err = log.track()
	}
	if err == nil {
		err = log.adoptConnections()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// Close ends the log and restores the kernel's settings and rules. The next log records the ends of flows that are open
// now, if it begins before they end.
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
	err := l.events.Follow(ctx, l.recordStart, l.recordEnd, l.findMissed)
	stop()
	running.Wait()
	l.flush(time.Now())
	return err
}

// recordStart records the start of a flow that the kernel has reported. recordListed records the start of a flow from a
// list of connections, whose time may be unknown.
func (l *Log) recordStart(conn conntrack.Connection) {
	instant := conn.Reported
	if instant.IsZero() {
		instant = time.Now().UTC()
	}
	l.addFlow(conn, instant)
}
func (l *Log) recordListed(conn conntrack.Connection) { l.addFlow(conn, time.Time{}) }

// addFlow records the start of a flow, unless it is recorded. instant is its time, unless the kernel tells it.
func (l *Log) addFlow(conn conntrack.Connection, instant time.Time) {
	flow, isOurs := l.flow(conn)
	key := connID{conn.Orig, conn.Zone}
	if _, known := l.open[key]; known || !isOurs {
		return
	}
	flow = l.start(flow, instant)
	l.open[key] = openFlow{flow.Client.Addr(), flow.Start, Holder{flow.MAC, flow.User, flow.Session}}
	l.add(flow, true, false)
}

// flow converts a connection to a flow. A known flow keeps its client, even if networks behind clients have changed
// since.
func (l *Log) flow(conn conntrack.Connection) (Flow, bool) {
	before, known := l.open[connID{conn.Orig, conn.Zone}]
	return flowOf(conn, func(a netip.Addr) bool {
		switch {
		case known:
			return a == before.client
		case l.cfg.LAN.Contains(a):
			return a != l.cfg.Gateway
		case a.Is6() && a != l.cfg.Gateway6 && l.cfg.IsClient6 != nil && l.cfg.IsClient6(a):
			return true
		}
		return l.cfg.IsBehindClient != nil && l.cfg.IsBehindClient(a)
	}, l.cfg.Gateway, l.cfg.Gateway6)
}

// start returns a flow's line of the start.
func (l *Log) start(flow Flow, instant time.Time) Flow {
	if flow.Start.IsZero() {
		flow.Start = instant
	}
	holder := l.cfg.HolderOf(flow.Client.Addr(), flow.Start)
	if flow.Start.IsZero() {
		flow.Start = time.Now().UTC()
	}
	flow.Event, flow.End, flow.MAC, flow.User, flow.Session = Begins, time.Time{}, holder.MAC, holder.User, holder.Session
	flow.UpBytes, flow.UpPkts, flow.DownBytes, flow.DownPkts = 0, 0, 0, 0
	return flow
}

// recordEnd records the end of a flow, also of one whose start is not recorded.
func (l *Log) recordEnd(conn conntrack.Connection) {
	flow, isOurs := l.flow(conn)
	if !isOurs {
		return
	}
	key := connID{conn.Orig, conn.Zone}
	before, known := l.open[key]
	if !known {
		s := l.start(flow, time.Time{})
		before = openFlow{s.Client.Addr(), s.Start, Holder{s.MAC, s.User, s.Session}}
	}
	delete(l.open, key)
	// Both lines have the same start. The kernel's report of the start may have had another time than that of the end.
	flow.Event, flow.Start = Ends, before.start
	if flow.End.IsZero() {
		flow.End = time.Now().UTC()
	}
	flow.MAC, flow.User, flow.Session = before.holder.MAC, before.holder.User, before.holder.Session
	if l.cfg.Bypassed == nil {
		l.add(flow, !known, true)
		return
	}
	l.deferEnd(endedFlow{flow, trackedOf(conn), !known})
}

// findMissed records the starts whose reports were lost, by listing all connections.
func (l *Log) findMissed() error {
	l.mu.Lock()
	l.stats.Missed++
	l.mu.Unlock()
	return conntrack.List(l.recordListed)
}

// add adds a flow's line to those that wait for the disk, and an ended flow to those that wait for the collector.
func (l *Log) add(flow Flow, started, ended bool) {
	line := flow.line()
	l.mu.Lock()
	defer l.mu.Unlock()
	if started {
		l.stats.Started++
	}
	if ended {
		l.stats.Ended++
		if l.collect != nil {
			l.ended = append(l.ended, flow)
		}
	}
	if len(l.lines)+len(line) > pendingBytes {
		l.stats.Lost++
		return
	}
	l.lines, l.waiting = append(l.lines, line...), l.waiting+1
}

// write flushes the log and checks the kernel's rules once in batchTime.
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

// flush writes the waiting lines and sends the ended flows. It begins another file when the present one is large or
// old. Lines that it cannot write wait for the next flush, up to pendingBytes; then they are lost.
func (l *Log) flush(now time.Time) {
	l.addBypassed()
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
			l.requeueLines(lines, n, err)
			return
		}
	}
	if l.out.goodBytes >= rotateSize || l.out.goodBytes > 0 && now.Sub(l.out.began) >= rotateTime {
		if err := l.rotate(now); err != nil && l.logDue() {
			l.cfg.Log.Error("beginning another file of the flow log; the present one grows", "err", err)
		}
	}
}

// requeueLines puts lines back, or counts them as lost when too many wait.
func (l *Log) requeueLines(lines []byte, n uint64, err error) {
	l.mu.Lock()
	if len(lines)+len(l.lines) <= pendingBytes {
		l.lines, l.waiting = append(lines, l.lines...), n+l.waiting
	} else {
		l.stats.Lost += n
	}
	lost, waiting := l.stats.Lost, l.waiting
	l.mu.Unlock()
	l.wakeTidy() // retention may make room
	if l.logDue() {
		l.cfg.Log.Error("the flow log cannot be written: make room on its disk, or lower flowlog.most", "folder",
			l.cfg.Folder, "lines lost", lost, "waiting", waiting, "err", err)
	}
}

// logDue reports whether logInterval has passed since it last returned true: errors are logged once a minute.
func (l *Log) logDue() bool {
	if time.Since(l.loggedAt) < logInterval {
		return false
	}
	l.loggedAt = time.Now()
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
	l.wakeTidy()
	return err
}

// wakeTidy makes the goroutine of tidy pack closed files and remove old ones.
func (l *Log) wakeTidy() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tidy packs and removes files when wakeTidy was called, and once a minute.
func (l *Log) tidy(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
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

// tidy packs every file but the current one, and removes files that are too old, or the oldest ones when all are too
// large together.
func tidy(ctx context.Context, cfg Config, current string, now time.Time) error {
	all, err := segments(cfg.Folder)
	if err != nil {
		return err
	}
	var total uint64
	for _, file := range all {
		total += uint64(file.bytes)
	}
	var errs []error
	for _, file := range all {
		if file.base == current || ctx.Err() != nil {
			continue
		}
		if now.Sub(file.changedAt) > cfg.KeepFor || cfg.MaxBytes > 0 && total > cfg.MaxBytes {
			total -= uint64(file.bytes)
			errs = append(errs, file.remove())
		} else if !file.packed {
			errs = append(errs, pack(file.base))
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
