// Package agent is the process that runs on each host of the lab and does its
// work there: links, clients, traffic, meters, programs. The lab speaks to it
// over its standard input and output, into a namespace or over ssh alike.
//
// An agent owns all it starts. It ends when its input ends, and then nothing of
// it is left: its programs live in a process namespace of their own (see jail),
// its clients in unnamed network namespaces, its links in the host's.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/profile"
	"golang.org/x/sys/unix"
)

// Options are an agent's command line.
type Options struct {
	Run         string // id of the run, so that an agent can be told by its command line
	Host        string // "a/router"
	LogDir      string // where output of the host's programs goes
	AgentCPUs   []int  // for the agent, its traffic and support programs
	ProgramCPUs []int  // for the host's programs: on a router the device under test
	// Isolated means that the agent was started in network and mount
	// namespaces of its own and must make them usable. Without, it runs no host: it
	// answers for the machine alone, and needs no rights for that.
	Isolated bool
}

// Agent serves one host.
type Agent struct {
	opts    Options
	jail    *jail // nil where the agent runs no host
	traffic trafficState
	pool    atomic.Pointer[client.Pool] // nil before there are clients

	mu         sync.Mutex // guards what follows
	programs   map[string]*spawned
	support    map[int]bool // process ids that never count
	sampler    *meter.Sampler
	visiting   *client.Visiting  // nil while no guests come
	recorder   *profile.Recorder // nil while perf does not run
	recordings int               // perf was started so often
}

// processors is more than the agent has busy threads. Pinned to one CPU, Go would
// choose 1, and its monitor thread would then wake every 20 µs to take the only
// processor away from whichever traffic thread sleeps until its next burst:
// some 5 % of a core in each agent, for nothing.
const processors = 8

// Main runs an agent over standard input and output until its input ends.
func Main(ctx context.Context, opts Options) error {
	if err := pinThreads(opts.AgentCPUs); err != nil {
		return err
	}
	runtime.GOMAXPROCS(processors)
	if opts.Isolated {
		if err := isolate(); err != nil {
			return fmt.Errorf("preparing the host %s: %w", opts.Host, err)
		}
	}
	a := &Agent{opts: opts, programs: map[string]*spawned{}, support: map[int]bool{}}
	defer a.close()
	if !opts.Isolated {
		return serve(ctx, os.Stdin, os.Stdout, a.machineMethods())
	}
	var err error
	if a.jail, err = newJail(); err != nil {
		return err
	}
	return serve(ctx, os.Stdin, os.Stdout, a.methods())
}

// isolate finishes what the new namespaces begin: mounts stay private, /sys
// shows the host's own interfaces, loopback is up.
func isolate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	return loopbackUp()
}

// methods are those of a host: what its machine is asked for, and the host's own.
func (a *Agent) methods() map[string]handler {
	all := a.machineMethods()
	maps.Copy(all, map[string]handler{
		"run":            method(a.run),
		"spawn":          method(a.spawn),
		"kill":           method(a.kill),
		"programs":       method(a.list),
		"file.write":     method(a.writeFile),
		"file.install":   method(a.install),
		"net.pair":       method(addPair),
		"net.apply":      method(apply),
		"net.neighbours": method(addNeighbours),
		"meter.open":     method(a.meterOpen),
		"meter.sample":   method(a.meterSample),
		"meter.pss":      method(a.meterPSS),
		"client.create":  method(a.clientCreate),
		"client.list":    method(a.clientList),
		"client.lease":   method(a.clientLease),
		"client.login":   method(a.clientLogin),
		"client.status":  method(a.clientStatus),
		"client.logout":  method(a.clientLogout),
		"client.release": method(a.clientRelease),
		"client.visit":   method(a.clientVisit),
		"client.leave":   method(a.clientLeave),
		"traffic.serve":  method(a.trafficServe),
		"traffic.start":  method(a.trafficStart),
		"traffic.stats":  method(a.trafficStats),
		"traffic.mark":   method(a.trafficMark),
		"traffic.short":  method(a.trafficShort),
		"traffic.stop":   method(a.trafficStop),
		"rtt.start":      method(a.rttStart),
		"rtt.take":       method(a.rttTake),
	})
	return all
}

// close ends all that the agent started. What it complains of nobody would hear.
func (a *Agent) close() {
	a.traffic.close()
	if pool := a.pool.Load(); pool != nil {
		pool.Close()
	}
	if a.recorder != nil {
		a.recorder.Kill()
	}
	if a.jail != nil {
		a.jail.close()
		client.EndConnections()
	}
}

// Meter says what the sampler of a host reads.
type Meter struct {
	IfNames []string `json:"if_names"`
	Counted []string `json:"counted"` // command names; empty counts all of the host's programs
	Support bool     `json:"support"` // count support programs too: on hosts that are no router
	Follow  bool     `json:"follow"`  // count by task clocks, see meter.Sampler.Follow: on routers
}

func (a *Agent) meterOpen(_ context.Context, m Meter) (none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// What it took to admit thousands of clients goes back to the machine now, and not by
	// and by while it is measured.
	debug.FreeOSMemory()
	skip := map[int]bool{a.jail.init.Process.Pid: true}
	for pid := range a.support {
		skip[pid] = !m.Support
	}
	if a.sampler != nil {
		a.sampler.Close()
		a.sampler = nil
	}
	s := &meter.Sampler{IfNames: m.IfNames, PIDLink: a.jail.pidLink, Skip: skip, Counted: m.Counted, Follow: m.Follow}
	if err := s.Open(); err != nil {
		return none{}, err
	}
	if pool := a.pool.Load(); pool != nil {
		files, err := pool.SNMPFiles()
		if err != nil {
			return none{}, err
		}
		s.AddClients(files)
	}
	a.sampler = s
	return none{}, nil
}

var errNoMeter = errors.New("the host's meter is not open")

func (a *Agent) meterSample(context.Context, none) (meter.Sample, error) {
	workers := a.traffic.workersNs() // before a.mu: whoever holds the traffic's lock may wait for it
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return meter.Sample{}, errNoMeter
	}
	s, err := a.sampler.Sample()
	s.AgentNs += workers
	return s, err
}

func (a *Agent) meterPSS(context.Context, none) (float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return 0, errNoMeter
	}
	return a.sampler.PSSMiB()
}
