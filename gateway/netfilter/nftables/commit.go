package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Commit applies a batch. On error nothing has changed.
//
// It requests no acknowledgements: the kernel reports errors in any case, and all of them
// before the system call returns. A commit therefore waits for nothing, costs two system
// calls and wakes no thread; data paths commit every second.
func (c *Conn) Commit(b *Batch) error {
	question, err := b.encode()
	if err != nil {
		return fmt.Errorf("encoding a change of nftables: %w", err)
	}
	if len(b.messages) == 0 {
		return nil
	}
	rc, err := c.c.SyscallConn()
	if err != nil {
		return fmt.Errorf("changing nftables: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := rc.Control(func(fd uintptr) {
		if err = unix.Sendto(int(fd), question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
			err = refusal(int(fd))
		}
	})
	if err = errors.Join(e, err); err != nil {
		return fmt.Errorf("changing nftables: %w", err)
	}
	return nil
}

// encode returns a batch as one message.
func (b *Batch) encode() (out []byte, err error) {
	if b.err != nil {
		return nil, b.err
	}
	edge := func(kind uint16) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	all := append([]netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}, b.messages...)
	for i, m := range append(all, edge(unix.NFNL_MSG_BATCH_END)) {
		m.Header.Length, m.Header.Sequence = uint32(unix.SizeofNlMsghdr+len(m.Data)), uint32(i+1)
		one, err := m.MarshalBinary()
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// refusal reads all available answers and returns the first error.
func refusal(fd int) error {
	var first, full error
	b := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return errors.Join(first, full)
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // there were more errors than the socket could hold
			full = err
			continue
		case err != nil:
			return errors.Join(first, err)
		}
		if errno := errorOf(b[:n]); errno != 0 && first == nil {
			first = errno
		}
	}
}

// errorOf returns the error of an answer: struct nlmsghdr, followed by struct nlmsgerr,
// which begins with the error.
func errorOf(answer []byte) syscall.Errno {
	const kind, failure = 4, unix.SizeofNlMsghdr
	if len(answer) < failure+4 || binary.NativeEndian.Uint16(answer[kind:]) != unix.NLMSG_ERROR {
		return 0
	}
	return syscall.Errno(-int32(binary.NativeEndian.Uint32(answer[failure:])))
}
