// Package sockbuf sets how much a socket holds for a program that is behind. The kernel doubles the numbers, and counts
// what a frame takes in memory, some 768 bytes of a small one.
package sockbuf

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Receive has a socket hold bytes of received data or, without CAP_NET_ADMIN, as much as net.core.rmem_max allows.
func Receive(fd, bytes int) error { return set(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, bytes) }

// Send has a socket hold bytes of data that is to be sent or, without CAP_NET_ADMIN, as much as net.core.wmem_max
// allows.
func Send(fd, bytes int) error { return set(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, bytes) }

// ReceiveOn is Receive for a connection.
func ReceiveOn(c syscall.Conn, bytes int) error { return on(c, bytes, Receive) }

// SendOn is Send for a connection.
func SendOn(c syscall.Conn, bytes int) error { return on(c, bytes, Send) }

func on(c syscall.Conn, bytes int, set func(fd, bytes int) error) error {
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
