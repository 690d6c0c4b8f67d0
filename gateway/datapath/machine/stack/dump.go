package stack

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds how often a list of the kernel's is read while it keeps changing.
const dumpTries = 20

// ErrChanged is what a list that is read by other means than package netlink returns to Whole.
var ErrChanged = netlink.ErrDumpInterrupted

// ConsistentList reads a list of the kernel's, and reads it again when it changed meanwhile and may be
// incomplete: list then returns netlink.ErrDumpInterrupted. It gives up with that error after some
// repetitions; the changes themselves are reported to a Follower.
func ConsistentList[T any](list func() ([]T, error)) ([]T, error) {
	for range dumpTries {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, fmt.Errorf("it changed each of %d times that it was read: %w", dumpTries, netlink.ErrDumpInterrupted)
}
