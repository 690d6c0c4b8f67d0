// Package agent is the process that runs on each host of the lab and does its
// work there: links, clients, traffic, meters, programs. The lab speaks to it
// over its standard input and output, into a namespace or over ssh alike.
//
// An agent owns all it starts. It ends when its input ends, and then nothing of
// it is left: its programs live in a process namespace of their own (see jail),
// its clients in unnamed network namespaces, its links in the host's.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/floor"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/sink"
	"github.com/gateweigh/gateweigh/lab/watch"
	"github.com/gateweigh/gateweigh/output"
)

// Options are an agent's command line.
type Options struct {
	Run         string // id of the run: backend.Clean knows the agents of a run by it
	Host        string // "a/router"
	LogDir      string // where output of the host's programs goes
	AgentCPUs   []int  // for the agent, its traffic and support programs
	ProgramCPUs []int  // for the host's programs: on a router the device under test
	// Isolated means that the agent was started in network and mount
	// namespaces of its own and must make them usable. Without, it runs no host: it
	// answers for the machine alone, and needs no rights for that.
	Isolated bool
	// Guarded means that a Guard has started the agent.
	Guarded bool
	// Patience ends the agent when the lab has sent nothing for so long; 0: never. A lab sends beats meanwhile: Conn.Beat.
	Patience time.Duration

	selfTest bool // try on this machine what agents do, and end
}

// Agent serves one host. Its exported methods carry out verbs of Conn.
type Agent struct {
	machineAgent
	opts      Options
	jail      *jail
	traffic   trafficState
	probes    probes
	portWatch portWatch
	pool      atomic.Pointer[client.Pool] // nil before there are clients

	mu       sync.Mutex // guards what follows
	programs map[string]*spawned
	support  map[int]bool // process ids that never count
	sampler  *meter.Sampler
	watched  []*watch.CPU
}

// processors is more than the agent has busy threads. Pinned to one CPU, Go would
// choose 1, and its monitor thread would then wake every 20 µs to take the only
// processor away from whichever traffic thread sleeps until its next burst:
// some 5 % of a core in each agent, for nothing.
const processors = 8

// Main runs an agent over standard input and output until its input ends.
func Main(ctx context.Context, opts Options) (err error) {
	if err := pinThreads(opts.AgentCPUs); err != nil {
		return err
	}
	runtime.GOMAXPROCS(processors)
	a := &Agent{
		machineAgent: machineAgent{dir: opts.LogDir}, opts: opts, programs: map[string]*spawned{}, support: map[int]bool{},
	}
	input := io.Reader(os.Stdin)
	if opts.Guarded {
		guard, err := awaitGuard()
		if err != nil {
			return nil // the guard has said why
		}
		defer guard.putBack(opts.LogDir)
		input = watchInput(opts.Patience, guard.connectionLost)
	}
	defer a.killPerf()
	defer a.slowed.close()
	if !opts.Isolated {
		return a.answer(ctx, input, os.Stdout)
	}
	// What the new namespaces lack: /sys has to show the host's own interfaces, and a container's /proc/sys may be read
	// only.
	err = mountAll(keepPrivate, mount{"sysfs", "/sys", "sysfs", 0, ""}, procMount)
	if err = errors.Join(err, loopbackUp()); err != nil {
		return fmt.Errorf("preparing the host %s: %w", opts.Host, err)
	}
	if a.jail, err = newJail(opts.LogDir); err != nil {
		return err
	}
	defer a.close()
	return a.answer(ctx, input, os.Stdout)
}

// close ends all that runs on the host. There is nobody left to report errors to.
func (a *Agent) close() {
	a.traffic.close()
	a.probes.close()
	if pool := a.pool.Load(); pool != nil {
		pool.Close()
	}
	a.jail.close()
	client.EndConnections()
}

// clients returns the pool of the host's clients.
func (a *Agent) clients() (*client.Pool, error) {
	if pool := a.pool.Load(); pool != nil {
		return pool, nil
	}
	return nil, errors.New("there are no clients on this host yet")
}

// CreateClients makes the host's clients, once: their number, names and
// addresses hold for as long as the host stands.
func (a *Agent) CreateClients(ctx context.Context, cfg client.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool.Load() != nil {
		return errors.New("the host has clients already")
	}
	pool, err := client.NewPool(ctx, cfg, a.runAsClient)
	if err == nil {
		a.pool.Store(pool)
	}
	return err
}

// runAsClient runs a client's own command, such as a portal's login script, in the
// client's namespace. An error has the last lines that it printed.
func (a *Agent) runAsClient(ctx context.Context, ns *os.File, argv, env []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, defaultTimeout, fmt.Errorf("still running after %s", defaultTimeout))
	defer cancel()
	var out bytes.Buffer
	cmd, err := a.start(ctx, Command{Argv: argv, Env: env, Support: true}, ns, &out, &out)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if output := LastLines(out.String()); err != nil && output != "" {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return strings.TrimSpace(out.String()), err
}

// Meter says what the sampler of a host reads.
type Meter struct {
	IfNames []string `json:"if_names"`
	Counted []string `json:"counted"`          // command names; empty counts all of the host's programs
	Support bool     `json:"support"`          // count support programs too: on hosts that are no router
	Follow  bool     `json:"follow"`           // count by task clocks, see meter.Sampler.Follow: on routers
	Kernel  []string `json:"kernel,omitempty"` // threads of the kernel that count as well, see meter.Sampler.Kernel
}

// OpenMeter opens the host's meter anew.
func (a *Agent) OpenMeter(_ context.Context, m Meter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The memory that admitting thousands of clients took is returned now: in the
	// background it would be returned while the host is measured.
	debug.FreeOSMemory()
	if err := a.raisePriority(); err != nil {
		return err
	}
	skip := map[int]bool{}
	if a.jail.init != nil {
		skip[a.jail.init.Process.Pid] = true
	}
	for pid := range a.support {
		skip[pid] = !m.Support
	}
	if a.sampler != nil {
		a.sampler.Close()
		a.sampler = nil
	}
	s := &meter.Sampler{
		IfNames: m.IfNames, PIDLink: a.jail.pidLink, Skip: skip, Counted: m.Counted, Follow: m.Follow, Kernel: m.Kernel}
	if err := s.Open(); err != nil {
		return err
	}
	if pool := a.pool.Load(); pool != nil {
		files, err := pool.SNMPFiles()
		s.AddClients(files)
		if err != nil {
			s.Close()
			return err
		}
	}
	a.sampler = s
	return nil
}

// raisePriority has the agent and all programs of the host go before the machine's other programs, as far as that is
// permitted: the runner says where it is not. Not before the host stands: while links are made the kernel has programs
// try again and again for a lock (restart_syscall) that its own worker holds, and that has ordinary priority.
func (a *Agent) raisePriority() error {
	if !a.opts.Isolated {
		return nil
	}
	done := map[int]bool{}
	for news := []int{os.Getpid()}; len(news) > 0; { // until none has begun between a look and its parent's turn
		for _, pid := range news {
			if err := realtime.Precede(pid); err != nil && !errors.Is(err, realtime.ErrDenied) {
				return fmt.Errorf("priority of the host's process %d: %w", pid, err)
			}
			done[pid] = true
		}
		if a.jail.init == nil {
			return nil
		}
		inside, err := meter.PIDsIn(a.jail.pidLink)
		if err != nil {
			return err
		}
		news = slices.DeleteFunc(inside, func(pid int) bool { return done[pid] })
	}
	return nil
}

var errNoMeter = errors.New("the host's meter is not open")

// Sample reads the host's meter.
func (a *Agent) Sample(context.Context) (meter.Sample, error) {
	workers := a.traffic.workersNs() // before a.mu is taken: the holder of the traffic's lock may wait for a.mu
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return meter.Sample{}, errNoMeter
	}
	s, err := a.sampler.Sample()
	s.AgentNs += workers
	return s, err
}

// PSSMiB is the memory of the counted programs.
func (a *Agent) PSSMiB(context.Context) (float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return 0, errNoMeter
	}
	return a.sampler.PSSMiB()
}

// Rest reads what the counted programs still have to do.
func (a *Agent) Rest(context.Context) (meter.Rest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return meter.Rest{}, errNoMeter
	}
	return a.sampler.Rest()
}

// Hidden subcommands of the program an agent is part of.
const (
	Subcommand    = "agent"
	GuardCommand  = "agent-guard"  // starts an agent and puts back what its host took of the machine: see Guard
	InitCommand   = "agent-init"   // becomes the first process of a jail
	WorkerCommand = "agent-worker" // holds a part of an agent's streams
	BurnerCommand = "agent-burner" // slows CPUs down
	SizesCommand  = "agent-sizes"  // counts the frames of a capture on its standard input, and prints a frames.Count
	SinkCommand   = "agent-sink"   // captures frames: see sink.Main
	FloorCommand  = "agent-floor"  // redirects packets: see floor.Main
)

// Self is the file of the program that an agent is part of, for programs of its host: that of the jail's first process,
// whatever became of the file meanwhile.
const Self = "/proc/1/exe"

// modesAsGiven is the umask of hosts' programs: some give up root, and read then what they made before.
const modesAsGiven = 0o022

// ErrorPrefix begins what an agent that failed says.
const ErrorPrefix = "gateweigh agent: "

// RunAs makes this process an agent, one of its helpers, or the first process of a jail, when its
// arguments say so, and then never returns. Every program that starts hosts
// calls it first: the host's agent is the program itself.
func RunAs(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch args[1] {
	case Subcommand:
		restoreSignals()
		unix.Umask(modesAsGiven) // of all that the host's programs make, whatever shell the run was started from
		var o Options
		if err = o.flags().Parse(args[2:]); err == nil && o.selfTest {
			out := output.To(os.Stdout)
			err = out.End(runSelfTest(context.Background(), out))
		} else if err == nil {
			err = Main(context.Background(), o)
		}
	case GuardCommand:
		machine.WithSbin() // which the PATH of an ordinary user, and that of sudo, may lack
		unix.Umask(modesAsGiven)
		err = guardMain(args[2:])
	case InitCommand:
		if len(args) != 3 {
			err = errors.New("the first process of a host needs the folder of its logs")
			break
		}
		err = runInit(args[2])
	case WorkerCommand:
		err = workerMain(context.Background())
	case BurnerCommand:
		err = burnerMain(context.Background())
	case SizesCommand:
		err = countSizes(os.Stdin, os.Stdout)
	case SinkCommand:
		err = sink.Main(args[2:])
	case FloorCommand:
		err = floor.Main(args[2:])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, ErrorPrefix+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// restoreSignals undoes that nohup, or a script that starts a run in the background, has signals ignored: programs
// would inherit that, and a shell cannot trap such a signal. The agent itself ends with the lab's connection.
func restoreSignals() {
	if kept := slices.DeleteFunc(
		[]os.Signal{syscall.SIGHUP, syscall.SIGINT}, func(s os.Signal) bool { return !signal.Ignored(s) }); len(kept) > 0 {
		signal.Notify(make(chan os.Signal, 1), kept...)
	}
}

// Args is the command line that Options stand for, without the program's name.
func (o Options) Args() []string {
	cpus, _ := json.Marshal([][]int{o.AgentCPUs, o.ProgramCPUs}) // numbers can always be written
	args := []string{Subcommand, "-run", o.Run, "-host", o.Host, "-log-dir", o.LogDir, "-cpus", string(cpus)}
	if o.Isolated {
		// backend.Clean looks for it: such an agent is safe to end with all connections of its namespace
		args = append(args, "-isolated")
	}
	if o.Guarded {
		args = append(args, "-guarded", "-patience", o.Patience.String())
	}
	return args
}

func (o *Options) flags() *flag.FlagSet {
	f := flag.NewFlagSet(Subcommand, flag.ContinueOnError)
	f.StringVar(&o.Run, "run", "", "id of the run")
	f.StringVar(&o.Host, "host", "", "name of the host")
	f.StringVar(&o.LogDir, "log-dir", ".", "folder for the output of the host's programs")
	f.Func("cpus", "CPUs of the agent and of the host's programs: [[0],[1]]", func(text string) error {
		return json.Unmarshal([]byte(text), &[...]*[]int{&o.AgentCPUs, &o.ProgramCPUs})
	})
	f.BoolVar(&o.selfTest, "self-test", false, "try on this machine what agents do; exit status 1 when something fails")
	f.BoolVar(&o.Guarded, "guarded", false, "started by a guard")
	f.DurationVar(&o.Patience, "patience", 0, "end when the lab has sent nothing for so long; 0: never")
	f.BoolVar(&o.Isolated, "isolated", false, "started in namespaces of its own")
	return f
}
