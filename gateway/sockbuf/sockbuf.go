// Package sockbuf sets how much a socket holds for a program that is behind.
package sockbuf

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Receive has a socket hold bytes of received data, or as much as net.core.rmem_max allows without CAP_NET_ADMIN.
// The kernel doubles the number, and counts what a frame takes in memory, some 768 bytes of a small one.
func Receive(c syscall.Conn, bytes int) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = rc.Control(func(fd uintptr) {
		if set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes); set != nil {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
	})
	return errors.Join(err, set)
}
