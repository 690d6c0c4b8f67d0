package burn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is an abstract Unix socket: it leaves no file, and is free again however its process ends.
const lockName = "@gateweigh-burn"

// ErrBusy is wrapped by Lock while another process burns.
var ErrBusy = errors.New("another process loads this machine's CPUs (gateweigh burn, or a run with router.speed)")

// Lock keeps a second process of this machine from burning until it is closed, or this process ends:
// each would take of the share that the other was asked for. It waits as long as patience for a process that
// may be ending. The error names the process that has the lock.
func Lock(patience time.Duration) (io.Closer, error) {
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := net.Listen("unix", lockName)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("locking the machine against other burners: %w", err)
		case time.Now().After(until):
			process, _ := Running()
			return nil, fmt.Errorf("%w%s: the two would take each other's time; wait for it or stop it", ErrBusy, process)
		}
	}
}

// Running names the process that burns, " (process N)"; burning is false where there is none.
func Running() (process string, burning bool) {
	conn, err := net.Dial("unix", lockName)
	if err != nil {
		return "", false
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", true
	}
	raw.Control(func(fd uintptr) {
		if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			process = fmt.Sprintf(" (process %d)", c.Pid)
		}
	})
	return process, true
}
