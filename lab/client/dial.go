package client

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialer binds to the client's address, in the host's namespace.
func (c *Client) dialer(network string) *net.Dialer {
	d := &net.Dialer{}
	if ip := c.LocalIP(); ip.IsValid() && isUDP(network) {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	} else if ip.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	return d
}

func isUDP(network string) bool { return network == "udp" || network == "udp4" }

// dialIn connects from inside a namespace. Only the socket is made there: a
// net.Dialer would keep a thread in the namespace until the connection stands,
// a thousand threads for a thousand clients that log in at once. local is bound
// to where it is valid; addr is a literal IPv4 address and port.
func dialIn(ctx context.Context, n *Namespace, network string, local netip.AddrPort, addr string) (net.Conn, error) {
	remote, err := netip.ParseAddrPort(addr)
	if err != nil || !remote.Addr().Is4() {
		return nil, fmt.Errorf("dialling %q: not an IPv4 address and port", addr)
	}
	kind := unix.SOCK_STREAM
	if isUDP(network) {
		kind = unix.SOCK_DGRAM
	}
	var fd int
	err = n.Do(func() error {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dialling %s: opening a socket: %w", addr, err)
	}
	file := os.NewFile(uintptr(fd), network+" "+addr)
	defer file.Close() // net.FileConn has its own descriptor
	if local.Addr().IsValid() {
		if err := unix.Bind(fd, sockaddr(local)); err != nil {
			return nil, fmt.Errorf("dialling %s: binding to %s: %w", addr, local.Addr(), err)
		}
	}
	if err := connect(ctx, file, remote); err != nil {
		return nil, fmt.Errorf("dialling %s: %w", addr, err)
	}
	return net.FileConn(file)
}

// connect connects a non-blocking socket, and waits without a thread.
func connect(ctx context.Context, file *os.File, remote netip.AddrPort) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { file.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	asked := false
	var failed error
	err = raw.Write(func(fd uintptr) (done bool) { // called again whenever the socket can be written to
		if asked {
			done, failed = connected(int(fd))
			return done
		}
		asked = true
		failed = unix.Connect(int(fd), sockaddr(remote))
		return failed != unix.EINPROGRESS
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case failed != nil:
		return os.NewSyscallError("connect", failed)
	}
	return nil
}

// connected reports whether connecting has come to an end, and to which.
func connected(fd int) (done bool, err error) {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		return true, err
	}
	// A socket that was not connected yet when it was polled first wakes its
	// waiter for nothing.
	_, err = unix.Getpeername(fd)
	return err == nil, nil
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
