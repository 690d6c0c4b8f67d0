package sink

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// queues returns the number of the interface's receive queues (ETHTOOL_GCHANNELS); 1 when its driver does not tell it.
// fd is any socket.
func (p port) queues(fd int) int {
	channels := struct{ command, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32 }{
		command: unix.ETHTOOL_GCHANNELS}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of the kernel's union
	}{data: unsafe.Pointer(&channels)}
	copy(request.name[:unix.IFNAMSIZ-1], p.name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return 1
	}
	return int(max(1, channels.rx+channels.combined))
}
