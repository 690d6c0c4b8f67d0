package client

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// dialer binds TCP to the client's address, in the host's namespace.
func (c *Client) dialer() *net.Dialer {
	d := &net.Dialer{}
	if ip := c.LocalIP(); ip.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	return d
}

// dialIn connects over TCP from inside a namespace. Only the socket is made there: a
// net.Dialer would keep a thread in the namespace until the connection stands,
// a thousand threads for a thousand clients that log in at once. local is bound
// to where it is valid; addr is a literal IPv4 address and port.
func dialIn(ctx context.Context, n *Namespace, local netip.Addr, addr string) (_ net.Conn, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("dialling %s: %w", addr, err)
		}
	}()
	remote, err := netip.ParseAddrPort(addr)
	if err != nil || !remote.Addr().Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address and port", addr)
	}
	var fd int
	err = n.Do(func() error {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), addr)
	defer file.Close() // net.FileConn has its own descriptor
	if local.IsValid() {
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: local.As4()}); err != nil {
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
	stop := context.AfterFunc(ctx, func() { file.SetDeadline(past) })
	defer stop()
	to := &unix.SockaddrInet4{Port: int(remote.Port()), Addr: remote.Addr().As4()}
	var refused error
	// Write calls the function again when the socket can be written to. Another connect then
	// reports how the first went (connect(2)): EALREADY is that it still goes on.
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
