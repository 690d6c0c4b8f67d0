package send

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

const (
	slotCount = 1 << 16 // SLOTS in send.bpf.c
	feedBatch = 1024
	atOnce    = 64 // batches in a row that are all due at one moment
	// plannerPause is the time that the planner sleeps between rounds. An engine sends a tenth of the slots in that time.
	plannerPause = time.Millisecond
)

// Sent is the outcome of a plan: RFC 2285's intended and offered load.
type Sent struct {
	// Intended is the number of frames due until now, or until the end. A sender that is far behind its plan counts only
	// the frames that it has read from the plan.
	Intended     int64
	More         bool  // there are more intended frames: an endless plan has them all due at once
	Offered      int64 // frames that the link took
	OfferedBytes int64 // their bytes, without FCS
	// Refused counts attempts that the link refused. The frame was tried again; with Config.Loses it is lost and counts as
	// offered.
	Refused   int64
	BySize    []SizeCount
	ByStream  []int64       // offered frames of each stream
	Late      Late          // of the offered frames
	Last      time.Duration // from the start to when the last offered frame left
	Elapsed   time.Duration
	ThreadNs  int64 // CPU time of the sending thread; it never sleeps
	PlannerNs int64 // CPU time of the thread that reads the plan and counts
	Engine    Engine
	Reason    string // why Engine is not EngineLive
	Favoured  bool   // see Config.Favoured
}

// SizeCount is the number of offered frames with one size.
type SizeCount struct {
	Bytes  int
	Frames int64
}

// schedule is the part of a plan that is about to be sent, and the account of what was. Slot n of the plan is at
// slots[n % slotCount]; an engine reads slots from control.Made to control.Produced.
type schedule struct {
	plan   Plan
	slots  []programsSlot
	c      *programsControl
	memory [][]byte // mappings behind both; none: the heap

	// The planner's own.
	batch   []frames.Frame
	numbers []uint64 // of each stream's next frame
	least   int      // bytes of the shortest frame that the streams can have
	over    bool     // the plan has no more frames
	due     uint64   // slots up to here are due

	mu      sync.Mutex // guards what follows
	counted uint64     // slots up to here are in sent
	sent    Sent
	sizes   [frames.MaxBytes + 1]int64
	end     int64 // ns since the start; 0 while sending
}

func newSchedule(cfg Config, l *live) (*schedule, error) {
	s := &schedule{plan: cfg.Plan, least: frames.MinBytes, batch: make([]frames.Frame, feedBatch),
		numbers: make([]uint64, len(cfg.Streams))}
	s.sent.ByStream = make([]int64, len(cfg.Streams))
	if l == nil {
		s.slots, s.c = make([]programsSlot, slotCount), &programsControl{}
		return s, nil
	}
	return s, l.share(s)
}

func (s *schedule) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.memory) == 0 {
		return
	}
	// Stats goes on reading the control.
	last := *s.c
	s.c, s.slots = &last, nil
	for _, m := range s.memory {
		_ = unix.Munmap(m) // fails for no mapping of mmap's
	}
	s.memory = nil
}

// planRound is one round of the planner.
func (s *schedule) planRound() error {
	s.count()
	s.countDue()
	return s.readPlan()
}

// readPlan reads as much of the plan as there is room for.
func (s *schedule) readPlan() error {
	for !s.over {
		produced := s.c.Produced
		room := min(slotCount-int(produced-s.counted), feedBatch)
		if room == 0 {
			return nil
		}
		n := s.plan.Fill(s.batch[:room])
		s.over = n < room
		for i, f := range s.batch[:n] {
			if int(f.Bytes) < s.least || int(f.Bytes) > s.plan.MaxBytes() || int(f.Stream) >= len(s.numbers) {
				return fmt.Errorf("frame %d of the plan has %d bytes and stream %d: the plan says %d to %d bytes and %d streams",
					produced+uint64(i), f.Bytes, f.Stream, s.least, s.plan.MaxBytes(), s.plan.Streams())
			}
			number := s.numbers[f.Stream]
			s.numbers[f.Stream]++
			s.slots[(produced+uint64(i))%slotCount] = programsSlot{
				Due: uint64(f.Due), Bytes: uint32(f.Bytes), Stream: uint32(f.Stream),
				Which: uint64(f.Stream)<<48 | number&(1<<48-1)}
		}
		atomic.StoreUint64(&s.c.Produced, produced+uint64(n))
	}
	return nil
}

// count enters the frames that the link took since the last round.
func (s *schedule) count() {
	taken := atomic.LoadUint64(&s.c.Taken)
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.counted < taken; s.counted++ {
		f := &s.slots[s.counted%slotCount]
		s.sent.OfferedBytes += int64(f.Bytes)
		s.sizes[f.Bytes]++
		s.sent.ByStream[f.Stream]++
		s.sent.Late.add(f.Left - f.Due)
		s.sent.Last = time.Duration(f.Left)
	}
	s.sent.Offered = int64(taken)
}

// countDue counts the slots that are due by now as intended.
func (s *schedule) countDue() {
	now := uint64(s.elapsed())
	s.due = max(s.due, s.counted)
	for s.due < s.c.Produced && s.slots[s.due%slotCount].Due <= now {
		s.due++
	}
	s.mu.Lock()
	s.sent.Intended = int64(s.due)
	s.mu.Unlock()
}

// finished reports whether the whole plan was sent.
func (s *schedule) finished() bool { return s.over && s.counted == s.c.Produced }

// elapsed is the time since the start: 0 before the first look at the plan.
func (s *schedule) elapsed() time.Duration {
	start := atomic.LoadUint64(&s.c.Start)
	if start == 0 {
		return 0
	}
	return time.Duration(monotonic() - int64(start))
}

// closeAccounts counts the last frames: those that the link took, and those that were due but did not leave.
func (s *schedule) closeAccounts() {
	s.count()
	end := s.elapsed()
	s.countDue()
	intended := int64(s.due)
	if s.due == s.c.Produced {
		intended += s.countUnread(end)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent.Intended, s.end = intended, int64(end)
}

// countUnread counts the frames that are due until end and that feed had no room for.
func (s *schedule) countUnread(end time.Duration) (n int64) {
	last, same := int64(-1), 0
	for !s.over {
		batch := s.batch[:s.plan.Fill(s.batch)]
		s.over = len(batch) < len(s.batch)
		for _, f := range batch {
			if f.Due > int64(end) {
				return n
			}
			n++
		}
		if len(batch) > 0 && batch[len(batch)-1].Due == last {
			if same++; same == atOnce { // there may be no end of them
				s.mu.Lock()
				s.sent.More = true
				s.mu.Unlock()
				return n
			}
			continue
		}
		if len(batch) > 0 {
			last, same = batch[len(batch)-1].Due, 0
		}
	}
	return n
}

func (s *schedule) stats() Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	sent.ByStream = slices.Clone(sent.ByStream)
	sent.Refused = int64(atomic.LoadUint64(&s.c.Refused))
	if sent.Elapsed = time.Duration(s.end); s.end == 0 {
		sent.Elapsed = s.elapsed()
	}
	for bytes, n := range s.sizes {
		if n > 0 {
			sent.BySize = append(sent.BySize, SizeCount{bytes, n})
		}
	}
	return sent
}

// monotonic is CLOCK_MONOTONIC, ns: bpf_ktime_get_ns's clock.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for no clock that exists
	return ts.Nano()
}

// clock reads CLOCK_MONOTONIC without a system call.
type clock struct {
	base   time.Time
	readNs int64
}

func newClock() clock {
	c, least := clock{}, time.Duration(1<<62)
	for range 8 { // the reading that nothing interrupted
		before := time.Now()
		at := monotonic()
		if took := time.Since(before); took < least {
			c, least = clock{before.Add(took / 2), at}, took
		}
	}
	return c
}

func (c clock) now() int64 { return c.readNs + int64(time.Since(c.base)) }
