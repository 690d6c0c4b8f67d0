package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/burn"
)

// Slow says how CPUs of a machine are to be slowed down.
type Slow struct {
	CPUs  []int    `json:"cpus"`
	Speed float64  `json:"speed"` // share of their time that is left to all else; 1 gives back what an earlier call took
	Own   []int    `json:"own"`   // CPUs of whatever else the slowing takes
	How   burn.How `json:"how"`   // what takes the rest competes for it
}

// slowed is the burner, a process of an agent that takes a share of the time of CPUs. It is a process of its own
// because its threads may hold up Go's garbage collection. It ends with the agent, because its input does.
//
//	agent ── stdin, stdout: JSON lines ──► gateweigh agent-burner
type slowed struct {
	mu     sync.Mutex // guards what follows
	burner *Conn      // nil while nothing is slowed
	exited <-chan struct{}
}

// Slow slows CPUs down until the agent ends, or is asked to give them back. It returns once they are slow.
func (m *machineAgent) Slow(ctx context.Context, s Slow) error {
	m.slowed.mu.Lock()
	defer m.slowed.mu.Unlock()
	if s.Speed == 1 {
		m.slowed.end()
		return nil
	}
	if m.slowed.burner != nil {
		return errors.New("CPUs of this machine are slowed down already")
	}
	c, err := StartChild([]string{BurnerCommand}, nil, os.Stderr)
	if err != nil {
		return fmt.Errorf("starting the process that slows CPUs down: %w", err)
	}
	conn, exited := c.Connect("the process that slows CPUs down")
	if err := conn.do(ctx, "Burn", s); err != nil {
		conn.Close()
		<-exited
		return err
	}
	m.slowed.burner, m.slowed.exited = conn, exited
	return nil
}

// ReadSlow reads how much of its CPUs' time the slowing has taken so far.
func (m *machineAgent) ReadSlow(ctx context.Context) ([]burn.CPUTime, error) {
	m.slowed.mu.Lock()
	conn := m.slowed.burner
	m.slowed.mu.Unlock()
	if conn == nil {
		return nil, errors.New("no CPU of this machine is slowed down")
	}
	return ask[[]burn.CPUTime](ctx, conn, "Read")
}

// close gives the CPUs back.
func (s *slowed) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// end closes the burner. The caller holds the lock.
func (s *slowed) end() {
	if s.burner != nil {
		s.burner.Close()
		<-s.exited
		s.burner = nil
	}
}

// burnerEnds is the time within which the burner of a killed run ends with its agent.
const burnerEnds = time.Second

// burner answers for a process that burns. Its exported methods carry out verbs.
type burner struct {
	b    *burn.Burner
	lock io.Closer // until the process ends
}

func (r *burner) Burn(_ context.Context, s Slow) error {
	if err := pinThreads(s.Own); err != nil {
		return err
	}
	var err error
	if r.lock, err = burn.Lock(burnerEnds); err != nil {
		return err
	}
	var loads []burn.Load
	for _, cpu := range s.CPUs {
		loads = append(loads, burn.Load{CPU: cpu, Share: 1 - s.Speed})
	}
	r.b, err = burn.Start(loads, s.How, 0)
	return err
}

func (r *burner) Read(context.Context) ([]burn.CPUTime, error) { return r.b.Read() }

// burnerMain is the body of a process that burns. Its threads run on when its input ends, and
// end with it.
func burnerMain(ctx context.Context) error {
	runtime.GOMAXPROCS(processors + runtime.NumCPU())
	debug.SetGCPercent(-1) // a collection would stop the threads; a run makes a few megabytes
	var b burner
	return serve(ctx, os.Stdin, os.Stdout, burnerVerbs, sameReceiver(&b))
}
