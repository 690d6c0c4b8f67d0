package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockName is an abstract Unix socket. It belongs to one process, leaves no file, and is free again however that
// process ends.
const lockName = "@gateweigh-run"

// ErrBusy is wrapped by LockMachine while another process measures.
var ErrBusy = errors.New("another run measures on this machine")

// LockMachine prevents a second run at the same time, because the two would disturb each other's routers. The error of
// a failed lock names the process that has it. Run calls LockMachine itself.
func LockMachine(dir string) (unlock func(), err error) {
	l, err := net.Listen("unix", lockName)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf(
			"%w (%s): two at once would disturb each other; wait for it (gateweigh run --wait) or stop it", ErrBusy, Holder())
	}
	if err != nil {
		return nil, fmt.Errorf("locking the machine: %w", err)
	}
	go func() { // ends when the listener is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "process %d, folder %s", os.Getpid(), dir)
			conn.Close()
		}
	}()
	return func() { l.Close() }, nil
}

// Holder asks the process with the lock for its name: "process 7, folder runs/a".
func Holder() string {
	conn, err := net.DialTimeout("unix", lockName, time.Second)
	if err != nil {
		return "it does not answer"
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	text, err := io.ReadAll(io.LimitReader(conn, 4096))
	if err != nil || len(text) == 0 {
		return "it does not answer"
	}
	return strings.TrimSpace(string(text))
}
