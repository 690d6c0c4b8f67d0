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

// SSH runs hosts on machines that are reached by the system's OpenSSH, with the user's own configuration and keys. On
// each machine a host is a network namespace with the interfaces that are named for it, and an agent with a guard: see
// agent.Guard. The machine's own network stays as it is.
//
//	lab ── ssh (one connection a machine, shared) ──► agent-guard ──► agent, in a namespace with eth1 and eth2
type SSH struct {
	Machines []Remote
	Config   string // file for ssh -F; empty: the user's
	Chrony   bool   // chronyd keeps the clocks of the machines at the ends, and says how well
}

// Remote is a machine with the host of each lab that it runs.
type Remote struct {
	Host    string // name of the host in the topology: "router"
	Address string // what ssh is called with: an alias of its configuration, or user@host
	// Links are the machine's interfaces by the topology's name of the port, "lan"; "" is the only one of an endpoint.
	// Each has one for every lab that can stand at the same time.
	Links map[string][]string
	Sudo  Sudo
	CPUs  []int // of the host; none: all that its agent may use
}

// Sudo says whether agents are started by sudo.
type Sudo string

// Ways to become root.
const (
	SudoAuto   Sudo = "auto" // where the connection is not root's
	SudoAlways Sudo = "true"
	SudoNever  Sudo = "false"
)

// HostErrors are the errors about machines that an error consists of; none where there is another.
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

// HostError is what is wrong with a machine of the backend, or what is said of it.
type HostError struct {
	Host string // in the topology
	Key  string // what is said of it: "address", "lan"
	Err  error
}

func (e *HostError) Error() string { return e.Host + ": " + e.Err.Error() }
func (e *HostError) Unwrap() error { return e.Err }

// patience is how long an agent waits for a lab that says nothing.
var patience = 20 * time.Second

const (
	beats   = 7                // that a lab sends in that time
	endTime = 20 * time.Second // for a machine to put its interfaces back
)

// overSSH is the open backend.
type overSSH struct {
	Options
	folder    string
	done      func() error // removes folder
	placement Placement
	cpus      int
	atOnce    int
	routers   string // name of the metered host
	clock     Clock
	machines  map[string]*machine
}

// machine is a machine that is connected.
type machine struct {
	Remote
	*connection
	facts   facts
	program string // file of the agent
	keeper  *Host  // an agent that lasts as long as the backend, and keeps program
}

var _ Backend = (*overSSH)(nil)

// Open connects to all machines, brings agents where they are needed, and refuses machines that cannot be hosts: all
// that is wrong, at once, each as a HostError. On error nothing is left.
func (s SSH) Open(ctx context.Context, o Options) (Backend, error) {
	b, err := s.connect(ctx, o)
	if err != nil {
		return nil, err
	}
	err = Each(slices.Collect(maps.Values(b.machines)), func(_ int, m *machine) error { return b.prepare(ctx, m) })
	if err == nil {
		err = b.distinct()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.place(ctx); err != nil {
		return nil, err
	}
	if s.Chrony {
		if b.clock, err = b.askClocks(ctx); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// connect makes the folder for the connections, and connects to all machines.
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

// begin makes the folder for the connections, and connects to none.
func (s SSH) begin(o Options) (*overSSH, error) {
	folder, done, err := scratch.New(scratch.SSH)
	if err != nil {
		return nil, err
	}
	b := &overSSH{Options: o, folder: folder, done: done, machines: map[string]*machine{}, atOnce: 2}
	for _, r := range s.Machines {
		m := &machine{Remote: r}
		b.machines[r.Host] = m
		m.connection = &connection{address: r.Address, config: s.Config, socket: filepath.Join(folder, r.Host)}
		for port, links := range r.Links {
			b.atOnce = min(b.atOnce, len(links))
			if port == portLAN {
				b.routers = r.Host
			}
		}
	}
	if b.routers == "" { // the router has no agent
		b.routers = hostOfServer
	}
	return b, nil
}

// reach connects to a machine.
func (m *machine) reach(ctx context.Context) (err error) {
	if m.facts, err = m.connection.open(ctx); err != nil {
		return &HostError{m.Host, "address", err}
	}
	return nil
}

// hostOfServer is the host whose machine answers for the lab where the router has no agent.
const hostOfServer = "server"

// portLAN is the port that the metered host alone has.
const portLAN = "lan"

// distinct refuses two hosts on one machine: they would be one network namespace, whose interfaces are not two ends of
// a cable.
func (b *overSSH) distinct() error {
	seen := map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(b.machines)) {
		m := b.machines[host]
		if m.facts.netns == "" {
			continue // it was not reached, or does not say
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

// place reads what the machines have of CPUs.
func (b *overSSH) place(ctx context.Context) error {
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
		if m.Host == b.routers {
			b.placement.Router, b.cpus = m.CPUs, found.Online
		} else {
			b.placement.Endpoints = m.CPUs
		}
	}
	return nil
}

// Describe implements Backend. Hosts are machines of their own; their clocks are not one, but may be
// kept alike.
func (b *overSSH) Describe() Description {
	return Description{AtOnce: b.atOnce, Placement: b.placement, CPUs: b.cpus, Cables: true, Clock: b.clock}
}

// Start implements Backend: the host is a namespace of the machine that is named like it.
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
		return nil, &HostError{host, m.keyOf(err, links), fmt.Errorf("starting host %s on %s: %w", name, m.Address, err)}
	}
	return h, nil
}

// link is the interface of a machine for a port of a lab.
func (b *overSSH) link(m *machine, port, lab string) string {
	list := m.Links[port]
	if b.atOnce > 1 && lab == "b" {
		return list[1]
	}
	return list[0]
}

// keyOf is the key that an error about one of a machine's interfaces is of.
func (m *machine) keyOf(err error, links []string) string {
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

// start starts a guard with its agent; with no links the agent answers for the machine.
func (b *overSSH) start(ctx context.Context, m *machine, name string, links []string) (*Host, error) {
	g := agent.Guard{Links: links, Agent: agent.Options{
		Run: b.Run, Host: name, Isolated: len(links) > 0, Patience: patience, AgentCPUs: m.CPUs, ProgramCPUs: m.CPUs}}
	command, err := m.guard(m.program, g)
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
	return m.greet(ctx, p, name, dir)
}

// log opens the file for what an agent says, in a folder for what its programs say.
func (b *overSSH) log(name string) (log *os.File, dir string, err error) {
	dir = filepath.Join(b.LogDir, strings.ReplaceAll(name, "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	log, err = os.OpenFile(filepath.Join(dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return log, dir, err
}

// greet speaks to an agent that is about to begin, and tells it from then on that the lab is there.
func (m *machine) greet(ctx context.Context, p *process, name, dir string) (*Host, error) {
	conn := agent.NewConn(p.output, p.input, fmt.Sprintf("the agent of host %s on %s", name, m.Address), p.ended)
	go func() { // ends with the connection
		tick := time.NewTicker(patience / beats)
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
	h := &Host{Conn: conn, Name: name, CPUs: m.CPUs, end: sync.OnceValue(func() error { return p.end(endTime) })}
	if err := h.awaitHello(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	h.beforeEnd = func() { keepLogs(h, dir) }
	return h, nil
}

// logsWithin bounds the wait for the logs of a host that ends.
var logsWithin = 2 * time.Second

// keepLogs fetches what the programs of a host have printed.
func keepLogs(h *Host, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), logsWithin)
	defer cancel()
	logs, err := h.Logs(ctx)
	if err != nil {
		return // a host that is lost has said so
	}
	for name, text := range logs {
		f, err := os.OpenFile(filepath.Join(dir, filepath.Base(name)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			f.WriteString(text)
			f.Close()
		}
	}
}

// Connect implements Backend: the cable is there. Its ends are the interfaces named for the ports.
func (b *overSSH) Connect(_ context.Context, one, other End) (oneIf, otherIf string, err error) {
	names := [2]string{}
	for i, e := range []End{one, other} {
		if e.Host == nil { // the switch that is there
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
	return b.machine(ctx, b.machines[b.routers], machineHost)
}

// Others implements Backend.
func (b *overSSH) Others(ctx context.Context) ([]*Host, error) {
	var names []string
	for _, host := range slices.Sorted(maps.Keys(b.machines)) {
		if host != b.routers {
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

func (b *overSSH) machine(ctx context.Context, m *machine, name string) (*Host, error) {
	h, err := b.start(ctx, m, name, nil)
	if err != nil {
		return nil, &HostError{m.Host, "address", fmt.Errorf("starting an agent for the machine %s: %w", m.Address, err)}
	}
	return h, nil
}

// Close implements Backend: agents' programs are removed from the machines, and connections closed.
func (b *overSSH) Close() error {
	err := Each(slices.Collect(maps.Values(b.machines)), func(_ int, m *machine) error {
		var err error
		if m.keeper != nil {
			err = m.keeper.Stop()
		}
		m.connection.close()
		return err
	})
	return errors.Join(err, b.done())
}
