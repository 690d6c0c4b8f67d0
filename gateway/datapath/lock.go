package datapath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

var (
	// ErrNotSupported is wrapped when this machine cannot run a data path; the message names
	// what is missing.
	ErrNotSupported = errors.New("not supported by this machine")
	// ErrForeign is wrapped for an address that no client of the LAN can have.
	ErrForeign = errors.New("no client's address")
	// ErrTaken is wrapped for a network that another client or another route has.
	ErrTaken = errors.New("the network is another's")
	// ErrBusy is wrapped when another gateway has one of the interfaces.
	ErrBusy = errors.New("another gateway has the interface")
	// ErrInUse is wrapped when another gateway has one of the folders.
	ErrInUse = errors.New("another gateway has the folder")
)

// Locks are interfaces and folders locked against other gateways.
type Locks []io.Closer

// Lock locks interfaces against a second gateway in this network namespace until Close or
// the end of the process. It fails with ErrBusy if another gateway has an interface,
// with any data path.
func Lock(interfaces ...string) (Locks, error) {
	var held Locks
	for _, name := range interfaces {
		l, err := net.Listen("unix", "@gatewayd/"+name)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w %s: stop it first", ErrBusy, name)
		} else if err != nil {
			err = fmt.Errorf("locking %s: %w", name, err)
		}
		if err != nil {
			return nil, errors.Join(err, held.Close())
		}
		held = append(held, l)
	}
	return held, nil
}

// LockFolder locks an existing folder against a second gateway on this machine until it is closed, or
// the process ends. It fails with ErrInUse if another gateway has the folder.
func LockFolder(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("locking a folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w %s: stop it first, or give each gateway folders of its own", ErrInUse, dir)
	case err != nil:
		err = fmt.Errorf("locking %s: %w", dir, err)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// Close unlocks all.
func (held Locks) Close() error {
	var errs []error
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
