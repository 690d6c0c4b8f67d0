package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning means that another daemon has the socket.
var ErrRunning = errors.New("another gatewayd is running")

// Socket is the control socket. Only one daemon at a time can have it, so no other daemon uses the same run_dir.
type Socket struct {
	lock       *os.File
	listener   net.Listener
	stallAfter time.Duration // a reader that reads nothing for this long is disconnected
}

// socketMode lets the daemon's user and group connect.
const socketMode = 0o660

// lockMode keeps other users from taking the lock, which needs only read access to the file.
const lockMode = 0o600

// Listen creates the socket at path. If a daemon was killed just before, it waits for that daemon's end. While another
// daemon runs, it returns ErrRunning after exitWait, with that daemon's process ID. Connections wait until Serve.
func Listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the control socket: %w", err)
	}
	lock, err := takeLock(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Socket{lock: lock, stallAfter: stallTimeout}
	// With the lock held, an existing socket belongs to a daemon that has ended.
	if err := removeSocket(path); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.listener, err = listenUnix(path); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the control socket: %w", err), s.Close())
	}
	return s, nil
}

// takeLock locks a file for the life of the process. The kernel releases the lock however the process ends. The file
// stays, so that two daemons never lock different files of the same name.
func takeLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, lockMode)
	if err == nil {
		err = file.Chmod(lockMode) // corrects an older file's mode, or an umask's effect
	}
	if err != nil {
		return nil, fmt.Errorf("locking the control socket: %w", err)
	}
	until := time.Now().Add(exitWait)
	for err = tryLock(file); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(until); err = tryLock(file) {
		time.Sleep(lockPause)
	}
	if err != nil {
		defer file.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		holder := ""
		if pid := writtenPID(file); pid > 0 {
			holder = fmt.Sprintf(" (process %d)", pid)
		}
		return nil, fmt.Errorf("%w%s with the same run_dir (%s): end it first, or give this one another run_dir", ErrRunning,
			holder, filepath.Dir(path))
	}
	awaitEnd(writtenPID(file), until)
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", path, err), file.Close())
	}
	return file, nil
}

// exitWait is the time that Listen waits for a killed process: the kernel takes about half a second to free its locks,
// ports and programs. Tests change it.
var exitWait = time.Second

const lockPause = 10 * time.Millisecond

func tryLock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// awaitEnd waits until the process that had a lock has ended, because the kernel may free the process's ports after its
// lock. pid 0 is none.
func awaitEnd(pid int, until time.Time) {
	if pid <= 0 || pid == os.Getpid() {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	for {
		left := time.Until(until)
		if left <= 0 {
			return // the process lives: other checks report the ports that it has
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1); !errors.Is(
			err, unix.EINTR) {
			return
		}
	}
}

// writtenPID returns the process ID in a lock file; 0 if there is none.
func writtenPID(file *os.File) int {
	line := make([]byte, 20)
	n, _ := file.ReadAt(line, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// removeSocket removes a socket, but no other kind of file.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is in the way of the control socket, and is none: move it away", path)
	}
	return os.Remove(path)
}

// listenUnix listens with the right mode from the first moment on: on Linux a socket's file gets the mode of its
// descriptor, less the umask.
func listenUnix(path string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }), err)
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil { // the umask may have removed bits
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Close closes the socket. It may be called twice, and after Serve.
func (s *Socket) Close() error {
	var err error
	if s.listener != nil {
		// This also removes the socket's file. Serve may have closed it already.
		if err = s.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		s.listener = nil
	}
	if s.lock != nil {
		// Remove the process ID, so that a later daemon does not wait for another process that has got the same ID.
		err = errors.Join(err, s.lock.Truncate(0), s.lock.Close())
		s.lock = nil
	}
	return err
}
