package datapath

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

var (
	// ErrNotSupported is wrapped when this kernel cannot run a data path; the message names
	// what is missing.
	ErrNotSupported = errors.New("not supported by this kernel")
	// ErrForeign is wrapped for an address that no client of the LAN can have.
	ErrForeign = errors.New("no client's address")
	// ErrBusy is wrapped when another gateway has one of the interfaces.
	ErrBusy = errors.New("another gateway has the interface")
)

// Locks are interfaces locked against other gateways.
type Locks []net.Listener

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

// Close unlocks the interfaces.
func (held Locks) Close() error {
	var errs []error
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
