package datapathtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// pathEnv is the environment variable with the name of the path that a gateway's process has.
const pathEnv = "GATEWAY_TEST_PATH"

// Process is the gateway of a test: a process that has the data path and carries out requests (Service). After Kill,
// Start starts a new one.
type Process struct {
	router *netnstest.Space
	path   Path
	orders Orders

	cmd  *exec.Cmd // nil: none is running
	rpc  *rpc.Client
	logs logtest.Log // of all processes of the test
}

// Said returns the log of all processes of the test.
func (p *Process) Said() string {
	return p.logs.String()
}

// Start starts a process; the data path is not opened yet.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	must(t, p.start())
}

func (p *Process) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), pathEnv+"="+p.path.Name)
	cmd.Stdout, cmd.Stderr = &p.logs, &p.logs
	cmd.ExtraFiles = []*os.File{far}
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS} // for ownSys
	if err := p.router.Start(cmd); err != nil {
		return errors.Join(err, conn.Close())
	}
	p.cmd, p.rpc = cmd, rpc.NewClient(conn)
	return p.call("Begin", p.orders, new(Outcome))
}

// Kill kills the process without notice.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	must(t, p.kill())
}

func (p *Process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	p.cmd.Wait()
	p.rpc.Close()
	p.cmd = nil
	return nil
}

// Restart is Kill and Start, for other goroutines than the test's.
func (p *Process) Restart() error {
	if err := p.kill(); err != nil {
		return err
	}
	return p.start()
}

// end closes and detaches the path and ends the process.
func (p *Process) end(t testing.TB) {
	if p.cmd == nil {
		p.Start(t)
	}
	if err := errors.Join(p.Close(), p.Detach()); err != nil {
		t.Errorf("in the end: %v", err)
	}
	p.Kill(t)
	if p.path.Keeps && strings.Contains(p.Said(), "level=ERROR") {
		t.Error("a gateway's process has logged an error")
	}
	if t.Failed() {
		t.Logf("the gateway's processes logged:\n%s", p.Said())
	}
}

// call sends a request to the process. An Outcome that is an error is returned as one.
func (p *Process) call(method string, arg, reply any) error {
	if p.cmd == nil {
		return errors.New("no process of the gateway is running")
	}
	call := p.rpc.Go("Service."+method, arg, reply, nil)
	select {
	case <-call.Done:
	case <-time.After(5 * time.Minute):
		return fmt.Errorf("%s does not return", method)
	}
	if call.Error != nil {
		return fmt.Errorf("%s: %w", method, call.Error)
	}
	if o, ok := reply.(*Outcome); ok {
		return o.err()
	}
	return nil
}

// do sends a request that answers with an error or nothing.
func (p *Process) do(method string, arg any) error { return p.call(method, arg, new(Outcome)) }

// Open opens the data path, and the gateway's services with it.
func (p *Process) Open() error { return p.do("Open", Nothing{}) }

// Close closes data path and services. It is no error if they are closed.
func (p *Process) Close() error { return p.do("Close", Nothing{}) }

// Detach removes everything that the data path left in the kernel.
func (p *Process) Detach() error { return p.do("Detach", Nothing{}) }

// Set sets clients one after the other.
func (p *Process) Set(c ...datapath.Client) error { return p.do("Set", c) }

// Remove removes addresses one after the other.
func (p *Process) Remove(a ...netip.Addr) error { return p.do("Remove", a) }

// OpenPort opens a port of the walled garden, or shuts it.
func (p *Process) OpenPort(d datapath.GardenPort, until time.Time) error {
	return p.do("OpenPort", TimedGardenPort{d, until})
}

// OpenFor lets one device reach a port, or ends that. It fails where the data path cannot do it.
func (p *Process) OpenFor(mac datapath.MAC, at netip.AddrPort, until time.Time) error {
	return p.do("OpenFor", Visit{mac, at, until})
}

// OpenGarden opens the walled garden for a prefix.
func (p *Process) OpenGarden(prefix string, until time.Time) error {
	return p.do("OpenGarden", GardenPrefix{netip.MustParsePrefix(prefix), until})
}

// Counters reads an address's counters.
func (p *Process) Counters(t testing.TB, a netip.Addr) (c datapath.Counters) {
	t.Helper()
	must(t, p.call("Counters", a, &c))
	return c
}

// Total reads the sum of all counters.
func (p *Process) Total(t testing.TB) (c datapath.Counters) {
	t.Helper()
	must(t, p.call("Total", Nothing{}, &c))
	return c
}

// Moved lists the addresses that have counted packets since the last call.
func (p *Process) Moved(t testing.TB) (a []netip.Addr) {
	t.Helper()
	must(t, p.call("Moved", Nothing{}, &a))
	return a
}

// Clients lists the addresses that have an entry.
func (p *Process) Clients(t testing.TB) (a []netip.Addr) {
	t.Helper()
	must(t, p.call("Clients", Nothing{}, &a))
	return a
}

// Packets counts packets by outcome.
func (p *Process) Packets(t testing.TB) (n map[string]uint64) {
	t.Helper()
	must(t, p.call("Packets", Nothing{}, &n))
	return n
}

// Forwarding names the present way of forwarding, in one word.
func (p *Process) Forwarding(t testing.TB) string {
	t.Helper()
	word, _ := p.ForwardingWhy(t)
	return word
}

// ForwardingWhy names the present way of forwarding, and the reason.
func (p *Process) ForwardingWhy(t testing.TB) (word, reason string) {
	t.Helper()
	var f Forwarding
	must(t, p.call("Forwarding", Nothing{}, &f))
	return f.Word, f.Why
}

// Seen returns what the gateway's other parts received.
func (p *Process) Seen(t testing.TB) (s Sightings) {
	t.Helper()
	must(t, p.call("Seen", Nothing{}, &s))
	return s
}

// forwarded counts admitted clients' packets that were forwarded by either way.
func forwarded(n map[string]uint64) uint64 { return n["forwarded"] + n["stack"] }
