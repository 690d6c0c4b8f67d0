package socket

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call makes a system call again for as long as signals interrupt it. Its result is 0
// with an error.
//
//go:uintptrescapes
func Call(trap, a1, a2, a3, a4, a5, a6 uintptr) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall6(trap, a1, a2, a3, a4, a5, a6)
		if errno != unix.EINTR {
			return max(0, int(n)), errno
		}
	}
}

// SendSome writes as much as the socket takes without waiting. It returns 0 when the socket is full.
func SendSome(fd int, b []byte) (int, error) { return SendSomeTo(fd, b, nil, 0) }

// SendSomeTo is SendSome to a raw address of n bytes. nil: the peer of the connected socket.
func SendSomeTo(fd int, b []byte, addr *byte, n uint32) (int, error) {
	sent, errno := Call(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(addr)), uintptr(n))
	switch errno {
	case 0:
		return sent, nil
	case unix.EAGAIN, unix.ENOBUFS:
		return 0, nil
	}
	return 0, fmt.Errorf("sending: %w", errno)
}

// New returns a non-blocking socket of a kind, unix.SOCK_STREAM or SOCK_DGRAM, for the family of addr in the calling
// thread's network namespace. A socket for datagrams refuses those that would be cut into fragments, because fragments
// are another load.
func New(kind int, addr netip.Addr) (fd int, err error) {
	family, level, option, value := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if addr.Unmap().Is4() {
		family, level, option, value = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a socket: %w", err)
	}
	if kind == unix.SOCK_DGRAM {
		if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("refusing fragments: %w", err)
		}
	}
	return fd, nil
}

// ListenUDP returns a non-blocking UDP socket bound in the calling thread's network
// namespace. Port 0 takes any.
func ListenUDP(addr netip.AddrPort) (fd int, err error) {
	if fd, err = New(unix.SOCK_DGRAM, addr.Addr()); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, Addr(addr)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listening on UDP %s: %w", addr, err)
	}
	return fd, nil
}

// Addr returns an address in the form that system calls take.
func Addr(a netip.AddrPort) unix.Sockaddr {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
