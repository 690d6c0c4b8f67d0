package stack

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds how often a list of the kernel's is read while it keeps changing.
const dumpTries = 20

// ErrChanged is what a list function that does not use package netlink returns to ConsistentList, which then reads the
// list again.
var ErrChanged = netlink.ErrDumpInterrupted

// ConsistentList reads a list of the kernel's by list, and reads it again when list returns
// netlink.ErrDumpInterrupted: the list changed meanwhile and may be incomplete. ConsistentList gives up with that error
// after dumpTries. It does not report the changes; a Follower does.
func ConsistentList[T any](list func() ([]T, error)) ([]T, error) {
	for range dumpTries {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, fmt.Errorf("it changed each of %d times that it was read: %w", dumpTries, netlink.ErrDumpInterrupted)
}
