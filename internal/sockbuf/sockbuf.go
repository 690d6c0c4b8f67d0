// Package sockbuf sets the size of a socket's buffer, which holds data while the program is too busy to take it. The
// kernel doubles the number that it is given, and counts what a frame takes in memory: some 768 bytes for a small one.
package sockbuf

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Receive sets a socket's receive buffer, in bytes. Without CAP_NET_ADMIN it gets net.core.rmem_max at most.
func Receive(fd, bytes int) error { return set(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, bytes) }

// Send sets a socket's send buffer, in bytes. Without CAP_NET_ADMIN it gets net.core.wmem_max at most.
func Send(fd, bytes int) error { return set(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, bytes) }

// ReceiveOn is Receive for a connection.
func ReceiveOn(c syscall.Conn, bytes int) error { return onConn(c, bytes, Receive) }

// SendOn is Send for a connection.
func SendOn(c syscall.Conn, bytes int) error { return onConn(c, bytes, Send) }

func onConn(c syscall.Conn, bytes int, set func(fd, bytes int) error) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = rc.Control(func(fd uintptr) { inner = set(int(fd), bytes) })
	return errors.Join(err, inner)
}

func set(fd, force, ask, bytes int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, ask, bytes); err != nil {
		return fmt.Errorf("setting a socket's buffer to %d bytes: %w", bytes, err)
	}
	return nil
}
