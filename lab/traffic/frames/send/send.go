// Package send carries out plans of frames: each leaves a link at its due time, numbered and time-stamped.
//
//	Plan ── feed ──► slots ── engine ──► link
//	                   └────── count ──► Sent
//
// A thread of its own sends and does nothing else; a second one fills the slots ahead of it and counts behind it. What
// the link refuses is tried again, so numbers have no gaps, and what could not be sent until the end is the difference
// between intended and offered (RFC 2285).
//
// There are two engines. The live engine makes frames in the kernel (BPF_PROG_RUN with live frames, Linux 5.18), for
// links that take frames from XDP; the packet engine uses a packet socket, on any link. Neither changes a setting of
// the link, and nothing of either outlives the process.
//
// The live engine uses each page again once its frame was received, and writes only the first 60 bytes anew. A device
// that changes payload in place, such as one that encrypts, therefore makes later UDP checksums wrong; receivers that
// look at stamps alone do not care.
package send

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
	"github.com/gateweigh/gateweigh/quote"
)

// Plan says which frames are to be sent, in order of their due times. Fill returns less than len(batch) only at the
// plan's end. No frame is longer than MaxBytes, and all streams are below Streams. The due times of an endless plan
// grow without bound.
type Plan interface {
	Fill(batch []frames.Frame) int
	MaxBytes() int
	Streams() int
}

var _ Plan = (*frames.Plan)(nil)

// DefaultMaxFor ends a sender that has no limit of its own.
const DefaultMaxFor = time.Hour

// Config describes what to send.
type Config struct {
	Link    string   // interface's name, in the network namespace of the thread that calls Start
	Streams []Stream // at least as many as the plan has
	Plan    Plan     // read by the sender alone
	// MaxFor is the most time from the first look at the plan; frames that have not left by then are not sent. 0:
	// DefaultMaxFor.
	MaxFor time.Duration
	CPUs   []int  // CPUs for the sending thread; empty: those of the process
	Engine Engine // "": the fastest that the link takes
	// Rests: the sending thread sleeps while no frame is due. This is for machines where it shares a CPU. Frames leave
	// some µs later, and the packet engine sends them.
	Rests bool
	// Loses: a frame that the link refuses is lost, as in the full ring of a network card. It counts as offered, and its
	// number is missing at the receiver. Without Loses it is sent again. The ring of a veth belongs to its other end.
	Loses bool
	// Favoured: both threads have priority over other programs, so that frames leave in time on a CPU with other work.
	// Where that is not permitted they run without priority: see Sent.Favoured.
	Favoured bool
}

// Engine is a way of sending.
type Engine string

// Engines.
const (
	EngineLive   Engine = "live"
	EnginePacket Engine = "packet"
)

// Sender sends. Its methods may be called from many goroutines.
type Sender struct {
	cfg      Config
	port     *port
	schedule *schedule
	live     *live // nil: not on this link
	filler   *filler
	heads    []programsHead

	planner  *socket.Thread // feeds, counts, ends the sending thread
	sending  *socket.Thread
	tid      atomic.Int32 // of the sending thread
	ending   atomic.Bool  // the sending thread is to return
	engine   atomic.Value // Engine
	reason   atomic.Value // string: why the live engine is not used
	favoured atomic.Bool  // the threads have priority over other programs
	failure  error        // the sending thread's, once it has ended
	err      error        // the sender's, once the planner has ended
}

// Start begins to send in the network namespace of the calling thread. Sending ends at the end of the plan, when ctx
// ends, after MaxFor, by Stop, or when the link goes down. Call Wait or Stop to release the sender's resources.
func Start(ctx context.Context, cfg Config) (_ *Sender, err error) {
	s := &Sender{cfg: cfg, filler: newFiller()}
	defer func() {
		if err != nil {
			s.release()
			err = fmt.Errorf("preparing to send on %s: %w", cfg.Link, err)
		}
	}()
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.port, err = openPort(cfg.Link); err != nil {
		return nil, err
	}
	if most := cfg.Plan.MaxBytes() - frames.EthernetBytes; most > s.port.mtu {
		return nil, fmt.Errorf(
			"the plan has frames of %d bytes, which need an MTU of %d, and the link's is %d: choose smaller frames or %s",
			cfg.Plan.MaxBytes(), most, s.port.mtu, quote.Command("ip", "link", "set", cfg.Link, "mtu", strconv.Itoa(most)))
	}
	if err := s.chooseEngine(); err != nil {
		return nil, err
	}
	if s.schedule, err = newSchedule(cfg, s.live); err != nil {
		return nil, err
	}
	s.schedule.least = minBytes(s.heads)
	if cfg.Loses {
		s.schedule.c.Loses = 1
	}
	if s.planner, err = socket.NewThread(); err != nil {
		return nil, err
	}
	if s.sending, err = socket.NewThread(); err != nil {
		s.planner.Close()
		return nil, err
	}
	s.planner.Start(ctx, "gw-plan", s.plan)
	return s, nil
}

// check checks the settings as far as that needs no link, and makes the streams' heads.
func (s *Sender) check() error {
	if s.cfg.Plan == nil {
		return errors.New("there is no plan")
	}
	if s.cfg.MaxFor < 0 {
		return fmt.Errorf("sending for at most %s: the limit is positive, or 0 for %s", s.cfg.MaxFor, DefaultMaxFor)
	}
	if s.cfg.MaxFor == 0 {
		s.cfg.MaxFor = DefaultMaxFor
	}
	if have, need := len(s.cfg.Streams), s.cfg.Plan.Streams(); have < need {
		return fmt.Errorf("the plan has %d streams, and addresses are given for %d", need, have)
	}
	var err error
	s.heads, err = heads(s.cfg.Streams, s.filler)
	return err
}

// chooseEngine prepares the live engine where it can be used.
func (s *Sender) chooseEngine() error {
	s.engine.Store(EngineLive)
	s.reason.Store("")
	switch s.cfg.Engine {
	case EnginePacket:
		s.fallBack("asked for")
		return nil
	case EngineLive, "":
		if s.cfg.Rests {
			s.fallBack("it does not rest")
			return nil
		}
	default:
		return fmt.Errorf("no engine %q: choose %q, %q or none", s.cfg.Engine, EngineLive, EnginePacket)
	}
	var err error
	if s.live, err = newLive(s); err == nil {
		return nil
	}
	if s.cfg.Engine == EngineLive {
		return err
	}
	s.fallBack(err.Error())
	return nil
}

func (s *Sender) fallBack(reason string) {
	s.engine.Store(EnginePacket)
	s.reason.Store(reason)
}

// send is the sending thread's work.
func (s *Sender) send() {
	s.tid.Store(int32(unix.Gettid()))
	defer s.tid.Store(0)
	if s.failure = s.prioritise(); s.failure != nil {
		return
	}
	if s.failure = s.pinThread(); s.failure != nil {
		return
	}
	if s.live != nil {
		err := s.live.run()
		if !errors.Is(err, errNoLiveFrames) || s.cfg.Engine == EngineLive {
			s.failure = err
			return
		}
		s.fallBack(err.Error())
	}
	if !s.ending.Load() {
		s.failure = newPacket(s).run()
	}
}

// prioritise gives the calling thread priority over other programs.
func (s *Sender) prioritise() error {
	if !s.cfg.Favoured {
		return nil
	}
	err := realtime.Favour(0)
	if errors.Is(err, realtime.ErrDenied) {
		return nil
	}
	s.favoured.Store(err == nil)
	return err
}

// pinThread moves the sending thread to its CPUs.
func (s *Sender) pinThread() error {
	if len(s.cfg.CPUs) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range s.cfg.CPUs {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("moving the sending thread to CPUs %v: %w", s.cfg.CPUs, err)
	}
	return nil
}

// plan is the planner's work: it starts the sending thread and ends it.
func (s *Sender) plan() {
	defer s.release()
	if s.err = s.prioritise(); s.err == nil {
		s.err = s.schedule.readPlan()
	}
	if s.err != nil {
		return
	}
	s.sending.Start(context.Background(), "gw-frames", s.send)
	err := s.feedUntilEnd()
	s.endSending()
	s.schedule.closeAccounts()
	s.err = errors.Join(err, s.failure)
}

// feedUntilEnd feeds and counts until the sender is to end.
func (s *Sender) feedUntilEnd() error {
	bell := s.planner.Bell()
	watch := stall{port: s.port, c: s.schedule.c}
	for !s.planner.Stopping() {
		if err := s.schedule.planRound(); err != nil {
			return err
		}
		if s.schedule.finished() || s.schedule.elapsed() >= s.cfg.MaxFor {
			return nil
		}
		if err := watch.check(); err != nil {
			return err
		}
		select {
		case <-s.sending.Done():
			return nil
		default:
		}
		if atomic.LoadUint32(&s.schedule.c.Stop) != 0 {
			s.interrupt() // the live engine is to return: the link does not take its frames
		}
		socket.Sleep(bell, plannerPause)
	}
	return nil
}

// endSending waits until the sending thread has ended.
func (s *Sender) endSending() {
	s.ending.Store(true)
	for {
		atomic.StoreUint32(&s.schedule.c.Stop, 1)
		s.interrupt()
		select {
		case <-s.sending.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// interrupt ends the sending thread's system call, if it is in one. Go's runtime interrupts threads by the same signal,
// and ignores one that it has not sent.
func (s *Sender) interrupt() {
	if tid := s.tid.Load(); tid != 0 {
		_ = unix.Tgkill(unix.Getpid(), int(tid), unix.SIGURG)
	}
}

// release frees what the sender holds beside its threads' descriptors.
func (s *Sender) release() {
	if s.schedule != nil {
		s.schedule.close()
	}
	if s.live != nil {
		s.live.close()
	}
	if s.port != nil {
		s.port.close()
	}
}

// Done is closed when the sender has ended.
func (s *Sender) Done() <-chan struct{} { return s.planner.Done() }

// Wait waits until the sender has ended. It returns an error if the sender could not continue: the link went down or
// was removed, or the plan has a frame that cannot be sent. Ending by the plan, ctx, MaxFor or Stop is no error.
func (s *Sender) Wait() error {
	<-s.planner.Done()
	s.sending.Close()
	s.planner.Close()
	return s.err
}

// Stop ends the sender and waits for it; the error is Wait's. It may be called twice.
func (s *Sender) Stop() error {
	s.planner.Close()
	return s.Wait()
}

// Stats returns what was sent so far. After the end of the sender it is the total.
func (s *Sender) Stats() Sent {
	sent := s.schedule.stats()
	sent.Favoured = s.favoured.Load()
	sent.Engine, sent.Reason = s.engine.Load().(Engine), s.reason.Load().(string)
	sent.ThreadNs, sent.PlannerNs = s.sending.CPUNs(), s.planner.CPUNs()
	return sent
}

// stall notices when a link has stopped taking frames.
type stall struct {
	port    *port
	c       *programsControl
	taken   uint64
	tries   uint64
	patient int // number of rounds in which the link took no frame
}

// stallRounds is the number of rounds of the planner in which a link may refuse all frames before its state is checked.
const stallRounds = 20

func (w *stall) check() error {
	taken := atomic.LoadUint64(&w.c.Taken)
	tries := atomic.LoadUint64(&w.c.Refused)
	if taken != w.taken || tries == w.tries {
		w.taken, w.tries, w.patient = taken, tries, 0
		return nil
	}
	if w.patient++; w.patient%stallRounds != 0 {
		return nil
	}
	if err := w.port.check(); err != nil {
		return fmt.Errorf("while frames were sent: %w", err)
	}
	return nil
}
