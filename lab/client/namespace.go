package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Namespace is a network namespace that only an open file keeps alive. So it has no name on the machine, and ends with
// the agent that made it.
type Namespace struct{ file *os.File }

const threadNS = "/proc/thread-self/ns/net" // the network namespace of the calling thread

// NewNamespace makes an empty network namespace.
func NewNamespace() (ns *Namespace, err error) {
	err = inThreadOf(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		f, err := os.Open(threadNS)
		ns = &Namespace{f}
		return err
	})
	return ns, err
}

// NamespaceOf opens the network namespace that process pid is in.
func NamespaceOf(pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	return &Namespace{f}, err
}

// IsCurrent reports whether n is the namespace of this process itself. It returns true where it cannot tell.
func (n *Namespace) IsCurrent() bool {
	home, err := startNamespace()
	if err != nil {
		return true
	}
	a, err1 := n.file.Stat()
	b, err2 := home.Stat()
	return err1 != nil || err2 != nil || os.SameFile(a, b)
}

// Do runs fn on a thread inside the namespace; for a nil Namespace it just calls fn. Sockets that fn makes belong to
// the namespace. Goroutines that fn starts run outside of it.
func (n *Namespace) Do(fn func() error) error {
	if n == nil {
		return fn()
	}
	return inThreadOf(n.file, fn)
}

// File returns the file that keeps the namespace alive.
func (n *Namespace) File() *os.File { return n.file }

// Close closes the file. The kernel removes the namespace and its interfaces once its last socket is closed.
func (n *Namespace) Close() error { return n.file.Close() }

// startNamespace is the namespace in which this process was started. It is opened once, because opening it for each
// socket would take a tenth of the time of making the sockets of a thousand clients.
var startNamespace = sync.OnceValues(func() (*os.File, error) { return os.Open(threadNS) })

// inThreadOf runs fn on a locked thread that has entered ns (nil: that stays where it is), and brings the thread back
// afterwards. A thread that cannot be brought back stays locked, so that it ends with its goroutine.
func inThreadOf(ns *os.File, fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := startNamespace()
		if err != nil {
			errc <- err
			return
		}
		if ns != nil {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				errc <- fmt.Errorf("entering a network namespace: %w", err)
				return
			}
		}
		err = fn()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		errc <- err
	}()
	return <-errc
}

// Sysctls are values below /proc/sys/net for every namespace of a client or server. They switch off what would change
// TCP from one measurement to the next. For example, a stream that pauses between bursts keeps its congestion window,
// which the kernel would else reduce (RFC 2861).
var Sysctls = map[string]string{
	"ipv4/tcp_slow_start_after_idle": "0",
	"ipv4/tcp_no_metrics_save":       "1",
	"ipv4/tcp_autocorking":           "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

// IPv6Sysctls switch the kernel's IPv6 on, for every host with IPv6 addresses. Hosts do not ask for router
// advertisements and take none: the lab sets their addresses and routes. Agent.Apply sets the same for interfaces that
// are there already.
var IPv6Sysctls = map[string]string{
	"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0", "ipv6/conf/default/accept_dad": "0",
	"ipv6/conf/default/accept_ra": "0", "ipv6/conf/default/router_solicitations": "0",
}

// SysctlsFor returns Sysctls for a client host or a server of a lab whose clients are of a family.
func SysctlsFor(f Family) map[string]string {
	if !f.Has6() {
		return Sysctls
	}
	with := maps.Clone(Sysctls)
	maps.Copy(with, IPv6Sysctls)
	return with
}

// SetSysctls sets values below /proc/sys/net in the namespace of the calling thread.
func SetSysctls(values map[string]string) error {
	for key, value := range values {
		err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(key, "/disable_ipv6") && value == "1" {
			continue // a kernel without IPv6 is as good as one that has it switched off
		}
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(key, "ipv6/") {
			err = errNoIPv6
		}
		if err != nil {
			return fmt.Errorf("setting net/%s = %s: %w", key, value, err)
		}
	}
	return nil
}

// errNoIPv6 is why a setting of IPv6 is not there.
var errNoIPv6 = errors.New("this kernel has no IPv6: it lacks CONFIG_IPV6, or was started with ipv6.disable=1")

// dialer returns a dialer that connects to addr from the client's address, in the namespace of the host.
func (c *Client) dialer(addr string) *net.Dialer {
	d := &net.Dialer{}
	remote, err := netip.ParseAddrPort(addr)
	if ip := c.AddressTo(remote.Addr()); err == nil && ip.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	return d
}

// dialIn connects over TCP from inside a namespace, from the address local where that is valid. addr is a literal
// address and port. Only the socket is made in the namespace. A net.Dialer would keep a thread there until the
// connection is established: a thousand threads for a thousand clients that log in at once.
func dialIn(ctx context.Context, n *Namespace, local netip.Addr, addr string) (_ net.Conn, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("dialling %s: %w", addr, err)
		}
	}()
	remote, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address and port", addr)
	}
	var fd int
	err = n.Do(func() error {
		fd, err = socket.New(unix.SOCK_STREAM, remote.Addr())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), addr)
	defer file.Close() // net.FileConn has its own descriptor
	if local.IsValid() {
		if err := unix.Bind(fd, socket.Addr(netip.AddrPortFrom(local, 0))); err != nil {
			return nil, fmt.Errorf("binding to %s: %w", local, err)
		}
	}
	if err := connect(ctx, file, remote); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// connect connects a non-blocking socket, and waits without a thread.
func connect(ctx context.Context, file *os.File, remote netip.AddrPort) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { file.SetDeadline(pastDeadline) })
	defer stop()
	to := socket.Addr(remote)
	var refused error
	// Write calls the function again once the socket is writable. The second connect then returns the outcome of the first
	// (connect(2)); EALREADY means that the first still goes on.
	err = raw.Write(func(fd uintptr) bool {
		refused = unix.Connect(int(fd), to)
		return refused != unix.EINPROGRESS && refused != unix.EALREADY
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return os.NewSyscallError("connect", refused)
}

// States of TCP sockets that EndConnections leaves alone, because they do not keep a namespace. The numbers are those
// of /proc/net/tcp.
const (
	tcpTimeWait = 6
	tcpListen   = 10
)

// EndConnections resets every TCP connection over IPv4 in the calling thread's network namespace. A connection that its
// program has closed, but whose last segments nobody acknowledges, keeps its namespace with the links in it for another
// 100 s or so. Such connections remain where guests leave before their gateway has answered. On kernels without
// CONFIG_INET_DIAG_DESTROY it does nothing, and the namespaces stay that long.
func EndConnections() error {
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // IPv4 is spoken over sockets of both
		list, err := netlink.SocketDiagTCP(family)
		if err != nil {
			errs = append(errs, fmt.Errorf("listing the host's connections: %w", err))
		}
		for _, s := range list {
			if s.State == tcpTimeWait || s.State == tcpListen || s.ID.Source.To4() == nil {
				continue
			}
			from := &net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)}
			err := netlink.SocketDestroy(from, &net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
			if errors.Is(err, unix.EOPNOTSUPP) {
				return nil
			}
			if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it has ended meanwhile
				errs = append(errs, fmt.Errorf("ending the connection %s: %w", from, err))
			}
		}
	}
	return errors.Join(errs...)
}
