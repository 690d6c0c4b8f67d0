package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/nic"
	"github.com/gateweigh/gateweigh/lab/scratch"
)

// SSH runs hosts on other machines. It reaches them by the system's OpenSSH, with the user's configuration and keys. A
// host there is an agent in a network namespace, to which a guard lends the machine's interfaces that the experiment
// names: see agent.Guard. All other interfaces of the machine stay as they are.
//
//	lab ── ssh (one connection a machine, shared) ──► agent-guard ──► agent, in a namespace with eth1 and eth2
type SSH struct {
	Machines []Remote
	Config   string // file for ssh -F; empty: the user's
	Chrony   bool   // the endpoints' machines run chronyd, which keeps their clocks right and tells how exact they are
}

// Remote is a machine, and which host it runs in each lab.
type Remote struct {
	Host    string // name of the host in the topology: "router"
	Address string // argument of ssh: an alias in its configuration, or user@host
	// Links maps the port's name in the topology ("lan"; "" for an endpoint, which has one port) to the machine's
	// interfaces for that port: one for each lab that can exist at the same time.
	Links map[string][]string
	Sudo  Sudo
	CPUs  []int // for the host; empty: all that its agent may use
}

// Sudo says whether agents are started by sudo.
type Sudo string

// Values of Sudo.
const (
	SudoAuto   Sudo = "auto" // if the user of the connection is not root
	SudoAlways Sudo = "true"
	SudoNever  Sudo = "false"
)

// HostErrors returns the errors about machines that are joined in err. It returns none if another error is among them.
func HostErrors(err error) (list []*HostError) {
	if several, is := err.(interface{ Unwrap() []error }); is {
		for _, one := range several.Unwrap() {
			errs := HostErrors(one)
			if len(errs) == 0 {
				return nil
			}
			list = append(list, errs...)
		}
		return list
	}
	var one *HostError
	if errors.As(err, &one) {
		list = append(list, one)
	}
	return list
}

// HostError is an error about a machine of the backend, or about one of its keys in the experiment file.
type HostError struct {
	Host string // name of its host in the topology
	Key  string // the key with the mistake: "address", "lan"
	Err  error
}

func (e *HostError) Error() string { return e.Host + ": " + e.Err.Error() }
func (e *HostError) Unwrap() error { return e.Err }

// silenceLimit is how long the lab may send an agent nothing before the agent ends.
var silenceLimit = 20 * time.Second

const (
	beatsPerLimit = 7                // how often a lab calls Beat in silenceLimit
	endTimeout    = 20 * time.Second // how long a machine may take to put its interfaces back
)

// overSSH is the backend that SSH.Open opens.
type overSSH struct {
	Options
	folder       string // of the connections' sockets
	removeFolder func() error
	placement    Placement
	cpus         int    // see Description
	atOnce       int    // see Description
	metered      string // name of the metered host; without one that of the host whose machine answers for the lab
	clock        Clock
	machines     map[string]*machine // by the names of their hosts
}

// machine is a machine of the open backend.
type machine struct {
	Remote
	*connection
	facts   facts
	program string // file of the agent there
	keeper  *Host  // an agent that runs as long as the backend; program, if it was copied there, ends with it
}

var _ Backend = (*overSSH)(nil)

// Open connects to all machines, and copies agents to those that have none. It is an error if a machine cannot be a
// host. The error joins all faults of all machines, each as a HostError. After an error nothing is left on the
// machines.
func (s SSH) Open(ctx context.Context, o Options) (Backend, error) {
	b, err := s.connect(ctx, o)
	if err != nil {
		return nil, err
	}
	err = Each(slices.Collect(maps.Values(b.machines)), func(_ int, m *machine) error { return b.prepare(ctx, m) })
	if err == nil {
		err = b.checkDistinct()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.readCPUs(ctx); err != nil {
		return nil, err
	}
	if s.Chrony {
		if b.clock, err = b.askClocks(ctx); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// connect makes the folder for the connections' sockets, and connects to all machines.
func (s SSH) connect(ctx context.Context, o Options) (*overSSH, error) {
	b, err := s.begin(o)
	if err != nil {
		return nil, err
	}
	err = Each(slices.Collect(maps.Values(b.machines)), func(_ int, m *machine) error { return m.reach(ctx) })
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// begin makes the folder for the connections' sockets, and lists the machines.
func (s SSH) begin(o Options) (*overSSH, error) {
	folder, done, err := scratch.New(scratch.SSH)
	if err != nil {
		return nil, err
	}
	b := &overSSH{Options: o, folder: folder, removeFolder: done, machines: map[string]*machine{}, atOnce: 2}
	for _, r := range s.Machines {
		m := &machine{Remote: r}
		b.machines[r.Host] = m
		m.connection = &connection{address: r.Address, config: s.Config, socket: filepath.Join(folder, r.Host)}
		for port, links := range r.Links {
			b.atOnce = min(b.atOnce, len(links))
			if port == portLAN {
				b.metered = r.Host
			}
		}
	}
	if b.metered == "" { // the router is a box on which no agent runs
		b.metered = hostOfServer
	}
	return b, nil
}

// reach connects to a machine and reads its facts.
func (m *machine) reach(ctx context.Context) (err error) {
	if m.facts, err = m.connection.open(ctx); err != nil {
		return &HostError{m.Host, "address", err}
	}
	return nil
}

// hostOfServer is the host whose machine answers for the lab if the router has no agent.
const hostOfServer = "server"

// portLAN is the name of a port that only the metered host has.
const portLAN = "lan"

// checkDistinct returns an error if two addresses lead to one machine and network namespace: a cable has to connect two
// machines.
func (b *overSSH) checkDistinct() error {
	seen := map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(b.machines)) {
		m := b.machines[host]
		if m.facts.netns == "" {
			continue // the machine was not reached, or did not print it
		}
		id := m.facts.boot + " " + m.facts.netns
		if other, twice := seen[id]; twice {
			return &HostError{host, "address", &remedied{
				fmt.Sprintf("%s is the same machine as %s (%s)", m.Address, other, b.machines[other].Address),
				"each host needs one of its own"}}
		}
		seen[id] = host
	}
	return nil
}

// readCPUs reads which CPUs the machines have, and sets the placement.
func (b *overSSH) readCPUs(ctx context.Context) error {
	b.placement.Apart = true
	for _, m := range b.machines {
		found, err := m.keeper.Machine(ctx)
		if err != nil {
			return errors.Join(&HostError{m.Host, "address", err}, b.Close())
		}
		for _, cpu := range m.CPUs {
			if !slices.Contains(found.Usable, cpu) {
				err := fmt.Errorf("its agent may not use CPU %d, but %v", cpu, found.Usable)
				return errors.Join(&HostError{m.Host, "cpus", err}, b.Close())
			}
		}
		if len(m.CPUs) == 0 {
			m.CPUs = found.Usable
		}
		if m.Host == b.metered {
			b.placement.Router, b.cpus = m.CPUs, found.Online
		} else {
			b.placement.Endpoints = m.CPUs
		}
	}
	return nil
}

// Describe implements Backend. The hosts' clocks can be compared only if chronyd keeps them right.
func (b *overSSH) Describe() Description {
	return Description{AtOnce: b.atOnce, Placement: b.placement, CPUs: b.cpus, Cables: true, Clock: b.clock}
}

// Start implements Backend. The host is a namespace on the machine that the experiment names for it.
func (b *overSSH) Start(ctx context.Context, name string, _ bool) (*Host, error) {
	lab, host, _ := strings.Cut(name, "/")
	m := b.machines[host]
	if m == nil {
		return nil, &HostError{host, "", fmt.Errorf("no machine is named for the host %s", host)}
	}
	var links []string
	for _, port := range slices.Sorted(maps.Keys(m.Links)) {
		links = append(links, b.link(m, port, lab))
	}
	h, err := b.start(ctx, m, name, links)
	if err != nil {
		return nil, &HostError{host, m.keyFor(err, links), fmt.Errorf("starting host %s on %s: %w", name, m.Address, err)}
	}
	return h, nil
}

// link returns the interface of a machine for a port of a lab, "a" or "b".
func (b *overSSH) link(m *machine, port, lab string) string {
	list := m.Links[port]
	if b.atOnce > 1 && lab == "b" {
		return list[1]
	}
	return list[0]
}

// keyFor returns the experiment's key that an error of a machine is about: that of the interface which its text names,
// else "address".
func (m *machine) keyFor(err error, links []string) string {
	for _, link := range links {
		if strings.Contains(err.Error(), link+" is ") || strings.Contains(err.Error(), "interface "+link) {
			for port, names := range m.Links {
				if slices.Contains(names, link) {
					return cmp.Or(port, "interface")
				}
			}
		}
	}
	return "address"
}

// start starts a guard with its agent. Without links the agent answers for the machine.
func (b *overSSH) start(ctx context.Context, m *machine, name string, links []string) (*Host, error) {
	g := agent.Guard{Links: links, Agent: agent.Options{
		Run: b.Run, Host: name, Isolated: len(links) > 0, Patience: silenceLimit, AgentCPUs: m.CPUs, ProgramCPUs: m.CPUs}}
	command, err := m.guardCommand(m.program, g)
	if err != nil {
		return nil, err
	}
	log, dir, err := b.log(name)
	if err != nil {
		return nil, err
	}
	p, err := m.connection.start("exec "+command, log)
	if err != nil {
		return nil, err
	}
	return m.connectAgent(ctx, p, name, dir)
}

// log opens the file for the messages of an agent, in a new folder for the output of its programs.
func (b *overSSH) log(name string) (log *os.File, dir string, err error) {
	dir = filepath.Join(b.LogDir, strings.ReplaceAll(name, "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	log, err = os.OpenFile(filepath.Join(dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return log, dir, err
}

// connectAgent waits for the first answer of the agent that p starts. From then on it calls Beat, so that the agent
// does not end by its silence limit.
func (m *machine) connectAgent(ctx context.Context, p *process, name, dir string) (*Host, error) {
	conn := agent.NewConn(p.output, p.input, fmt.Sprintf("the agent of host %s on %s", name, m.Address), p.ended)
	go func() { // ends with the connection
		tick := time.NewTicker(silenceLimit / beatsPerLimit)
		defer tick.Stop()
		for {
			select {
			case <-conn.Done():
				return
			case <-tick.C:
				conn.Beat()
			}
		}
	}()
	h := &Host{Conn: conn, Name: name, CPUs: m.CPUs, end: sync.OnceValue(func() error { return p.end(endTimeout) })}
	if err := h.awaitHello(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	h.beforeEnd = func() { keepLogs(h, dir) }
	return h, nil
}

// logsTimeout bounds the wait for the logs of a host that ends.
var logsTimeout = 2 * time.Second

// keepLogs fetches what the programs of a host have printed, and appends it to files in dir.
func keepLogs(h *Host, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), logsTimeout)
	defer cancel()
	logs, err := h.Logs(ctx)
	if err != nil {
		return // the host is lost, which another request reports
	}
	for name, text := range logs {
		f, err := os.OpenFile(filepath.Join(dir, filepath.Base(name)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			f.WriteString(text)
			f.Close()
		}
	}
}

// Connect implements Backend. The cable exists; its ends are the interfaces that the experiment names for the ports.
func (b *overSSH) Connect(_ context.Context, one, other End) (oneIf, otherIf string, err error) {
	names := [2]string{}
	for i, e := range []End{one, other} {
		if e.Host == nil { // an existing switch
			continue
		}
		lab, host, _ := strings.Cut(e.Host.Name, "/")
		m := b.machines[host]
		port := e.Port
		if m.Links[port] == nil {
			port = ""
		}
		if m.Links[port] == nil {
			return "", "", &HostError{host, "", fmt.Errorf("no interface is named for its port %s", e.Port)}
		}
		names[i] = nic.LentName(b.link(m, port, lab))
	}
	return names[0], names[1], nil
}

// Machine implements Backend.
func (b *overSSH) Machine(ctx context.Context) (*Host, error) {
	return b.machine(ctx, b.machines[b.metered], machineHost)
}

// Others implements Backend.
func (b *overSSH) Others(ctx context.Context) ([]*Host, error) {
	var names []string
	for _, host := range slices.Sorted(maps.Keys(b.machines)) {
		if host != b.metered {
			names = append(names, host)
		}
	}
	hosts := make([]*Host, len(names))
	err := Each(names, func(i int, name string) (err error) {
		hosts[i], err = b.machine(ctx, b.machines[name], name)
		return err
	})
	return hosts, err
}

// machine starts an agent that answers for a machine.
func (b *overSSH) machine(ctx context.Context, m *machine, name string) (*Host, error) {
	h, err := b.start(ctx, m, name, nil)
	if err != nil {
		return nil, &HostError{m.Host, "address", fmt.Errorf("starting an agent for the machine %s: %w", m.Address, err)}
	}
	return h, nil
}

// Close implements Backend. It removes the agents' programs from the machines, and closes the connections.
func (b *overSSH) Close() error {
	err := Each(slices.Collect(maps.Values(b.machines)), func(_ int, m *machine) error {
		var err error
		if m.keeper != nil {
			err = m.keeper.Stop()
		}
		m.connection.close()
		return err
	})
	return errors.Join(err, b.removeFolder())
}
