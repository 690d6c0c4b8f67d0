package transition

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiveError is recvmsg(2) from a socket's error queue. It returns the control messages, and drops the data, which
// are a copy of the sent bytes.
func receiveError(fd int, control []byte) ([]byte, error) {
	var msg unix.Msghdr
	msg.Control = &control[0]
	msg.SetControllen(len(control))
	_, _, errno := unix.RawSyscall(
		unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return nil, errno
	}
	return control[:msg.Controllen], nil
}

// parseStamp reads a time stamp of the kernel from control messages (struct scm_timestamping). For sent bytes it also
// returns where they were stamped (kind) and the number of the last byte in the stream (id, both from struct
// sock_extended_err, include/uapi/linux/errqueue.h).
func parseStamp(control []byte) (stamp unix.Timespec, kind int, id uint32) {
	kind = -1
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return stamp, kind, 0
	}
	for _, m := range list {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPING &&
			len(m.Data) >= int(unsafe.Sizeof(stamp)):
			stamp = *(*unix.Timespec)(unsafe.Pointer(&m.Data[0])) // the first of three: software
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR,
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR:
			const info, data = 8, 12
			if len(m.Data) >= data+4 && m.Data[4] == unix.SO_EE_ORIGIN_TIMESTAMPING {
				kind = int(binary.NativeEndian.Uint32(m.Data[info:]))
				id = binary.NativeEndian.Uint32(m.Data[data:])
			}
		}
	}
	return stamp, kind, id
}

// runQueueWait returns how long the calling thread has waited for a CPU so far, ns. It is 0 where the kernel does not
// count that.
func runQueueWait() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", unix.Gettid()))
	if err != nil {
		return 0
	}
	var run, wait int64
	_, _ = fmt.Sscan(string(raw), &run, &wait)
	return wait
}

// anyPort is an address with a port that the kernel chooses.
func anyPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
