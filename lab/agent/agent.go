// Package agent is the process that does the lab's work on one host: it sets up
// links, simulates clients, sends traffic, reads meters and runs programs. The
// lab process sends it requests, each named by a verb, over its standard input
// and reads the answers from its standard output. The host may be a namespace
// on the lab's machine, or a machine that is reached over ssh.
//
// An agent ends when its input ends, and nothing that it started remains. The
// kernel removes the host's programs with their process namespace (see jail),
// and clients and links with their network namespaces, which have no names.
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
	Run         string // id of the run, by which backend.Clean finds a run's agents
	Host        string // "a/router"
	LogDir      string // folder for the output of the host's programs
	AgentCPUs   []int  // for the agent, its traffic and support programs
	ProgramCPUs []int  // for the host's programs: on a router the device under test
	// Isolated means that the agent was started in network and mount
	// namespaces of its own and must make them usable. An agent without them runs
	// no host: it answers questions about the machine, and needs no root for that.
	Isolated bool
	// Guarded means that a Guard has started the agent.
	Guarded bool
	// Patience is how long the lab may send nothing before the agent ends; 0: any time. While a lab has no request, it
	// calls Conn.Beat.
	Patience time.Duration

	selfTest bool // run the self-test instead of serving a lab
}

// Agent serves one host. Its exported methods carry out the requests that the methods of Conn send.
type Agent struct {
	machineAgent
	opts      Options
	jail      *jail
	traffic   trafficState
	probes    probes
	pulses    pulses
	portWatch portWatch
	pool      atomic.Pointer[client.Pool] // nil before there are clients

	mu       sync.Mutex // guards what follows
	programs map[string]*spawned
	support  map[int]bool // process ids of support programs
	sampler  *meter.Sampler
	course   *course // nil: none was begun
	watched  []*watch.CPU
}

// maxProcs is the agent's GOMAXPROCS: more than it has busy threads. On one CPU
// Go would choose 1. Its monitor thread would then wake every 20 µs to take that
// one from a traffic thread that sleeps until its next burst, which would cost
// each agent some 5 % of a core.
const maxProcs = 8

// Main runs an agent over standard input and output until its input ends.
func Main(ctx context.Context, opts Options) (err error) {
	if err := pinThreads(opts.AgentCPUs); err != nil {
		return err
	}
	runtime.GOMAXPROCS(maxProcs)
	a := &Agent{
		machineAgent: machineAgent{dir: opts.LogDir}, opts: opts, programs: map[string]*spawned{}, support: map[int]bool{},
	}
	input := io.Reader(os.Stdin)
	if opts.Guarded {
		guard, err := awaitGuard()
		if err != nil {
			return nil // the guard prints why
		}
		defer guard.putBack(opts.LogDir)
		input = watchInput(opts.Patience, guard.guardEnded)
	}
	defer a.killPerf()
	defer a.slowed.close()
	if !opts.Isolated {
		return a.answer(ctx, input, os.Stdout)
	}
	// In the new namespaces, /sys still shows the machine's interfaces instead of the host's, and in a container /proc/sys
	// may be read-only.
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

// close ends all that runs on the host. It drops errors, because the lab reads no more answers.
func (a *Agent) close() {
	a.traffic.close()
	a.probes.close()
	a.pulses.close()
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

// CreateClients makes the host's clients. A second call is an error: number, names and
// addresses of the clients stay the same until the host ends.
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

// runAsClient runs a command of a client, such as a portal's login script, in the
// client's namespace ns. It returns what the command printed; an error has the last lines of it.
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

// Meter says what a host's sampler reads.
type Meter struct {
	IfNames []string `json:"if_names"`         // interfaces
	Counted []string `json:"counted"`          // command names; empty: all of the host's programs
	Support bool     `json:"support"`          // count support programs too: on hosts that are no router
	Follow  bool     `json:"follow"`           // count by task clocks, see meter.Sampler.Follow: on routers
	Kernel  []string `json:"kernel,omitempty"` // kernel threads that count too, see meter.Sampler.Kernel
	// Optional leaves CPU time out where the machine cannot tell it: the samples say why.
	Optional bool `json:"optional,omitempty"`
}

// OpenMeter opens the host's meter, and closes an earlier one.
func (a *Agent) OpenMeter(_ context.Context, m Meter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Admitting thousands of clients took memory. It goes back to the kernel now, because
	// Go would otherwise return it in the background while the host is measured.
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
	if m.Optional {
		s.Unmetered = machine.Unmetered()
	}
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

// raisePriority schedules the agent and all programs of the host before the machine's other programs. Where that is not
// permitted it does nothing, and the runner tells the user. It must not be called while links are made: then the
// kernel's worker, which has ordinary priority, holds a lock for which programs try again and again (restart_syscall),
// so programs of higher priority would keep the worker from its CPU.
func (a *Agent) raisePriority() error {
	if !a.opts.Isolated {
		return nil
	}
	done := map[int]bool{}
	// A program may start another one between the listing and its own turn, so this ends when a listing has no new ones.
	for news := []int{os.Getpid()}; len(news) > 0; {
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
	workers := a.traffic.workersNs() // before a.mu, because the holder of the traffic's lock may wait for a.mu
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return meter.Sample{}, errNoMeter
	}
	s, err := a.sampler.Sample()
	s.AgentNs += workers
	return s, err
}

// PSSMiB is the memory of the counted programs, MiB: pages that programs share are divided among their users.
func (a *Agent) PSSMiB(context.Context) (float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return 0, errNoMeter
	}
	return a.sampler.PSSMiB()
}

// Rest reads how much work of the counted programs is still waiting, see meter.Rest.
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
	GuardCommand  = "agent-guard"  // lends a machine's interfaces to an agent and puts them back: see Guard
	InitCommand   = "agent-init"   // becomes the first process of a jail
	WorkerCommand = "agent-worker" // holds a part of an agent's streams
	BurnerCommand = "agent-burner" // slows CPUs down
	SizesCommand  = "agent-sizes"  // counts the frames of a capture on its standard input, and prints a frames.Count
	SinkCommand   = "agent-sink"   // captures frames: see sink.Main
	FloorCommand  = "agent-floor"  // redirects packets: see floor.Main
)

// Self is the path by which a host's programs start this program. It names the file of the jail's first process, so it
// works even after the file was removed or replaced.
const Self = "/proc/1/exe"

// programUmask lets all users read what the host's programs create: some programs give up root, and must then still
// read the files that they made as root.
const programUmask = 0o022

// ErrorPrefix begins the message of an agent that failed.
const ErrorPrefix = "gateweigh agent: "

// RunAs carries out one of the hidden subcommands and ends the process, when the first argument is one.
// Otherwise it returns. A program that starts hosts must call it first,
// because it starts itself again as the host's agent.
func RunAs(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch args[1] {
	case Subcommand:
		restoreSignals()
		unix.Umask(programUmask) // the shell that started the run may have had another one
		var o Options
		if err = o.flags().Parse(args[2:]); err == nil && o.selfTest {
			out := output.To(os.Stdout)
			err = out.End(runSelfTest(context.Background(), out))
		} else if err == nil {
			err = Main(context.Background(), o)
		}
	case GuardCommand:
		machine.WithSbin() // the PATH of an ordinary user, or of sudo, may lack the sbin folders
		unix.Umask(programUmask)
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

// restoreSignals stops ignoring signals that nohup, or a script that starts a run in the background, made this process
// ignore. The host's programs would inherit that, and a shell among them could not trap the signal. The agent
// itself drops the signals: it ends with the lab's connection. It drops SIGPIPE too, which an answer to a broken
// connection causes: the agent may still have to put the machine's interfaces back.
func restoreSignals() {
	dropped := slices.DeleteFunc(
		[]os.Signal{syscall.SIGHUP, syscall.SIGINT}, func(s os.Signal) bool { return !signal.Ignored(s) })
	signal.Notify(make(chan os.Signal, 1), append(dropped, syscall.SIGPIPE)...)
}

// Args is the command line for these options, without the program's name.
func (o Options) Args() []string {
	cpus, _ := json.Marshal([][]int{o.AgentCPUs, o.ProgramCPUs}) // numbers can always be written
	args := []string{Subcommand, "-run", o.Run, "-host", o.Host, "-log-dir", o.LogDir, "-cpus", string(cpus)}
	if o.Isolated {
		// backend.Clean looks for this flag: only of an isolated agent may it end all connections of the network namespace.
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
