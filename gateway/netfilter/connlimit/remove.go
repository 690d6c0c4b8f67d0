package connlimit

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// LeftInKernel reports whether the table of a LAN exists.
func LeftInKernel(lan string) bool {
	found, err := nftables.TableExists(tableOf(Table(lan)))
	return err == nil && found
}

// releaseTimeout is how long Remove waits for a daemon that holds the table to let go of it.
const releaseTimeout = 5 * time.Second

// Remove removes the table of a LAN, if it exists. Where a running daemon holds the table, Remove waits until that
// daemon has ended or has noticed that its data path was detached.
func Remove(lan string) error {
	if !LeftInKernel(lan) {
		return nil
	}
	conn, err := nftables.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for deadline := time.Now().Add(releaseTimeout); ; time.Sleep(10 * time.Millisecond) {
		for _, held := range []bool{true, false} { // old kernels do not know the first form
			b := &nftables.Batch{Held: held}
			b.DeleteTable(tableOf(Table(lan)))
			if err = conn.Commit(b); err == nil || errors.Is(err, unix.EPERM) {
				break
			}
		}
		if err == nil || !LeftInKernel(lan) {
			return nil
		}
		if !errors.Is(err, unix.EPERM) || time.Now().After(deadline) {
			return fmt.Errorf("removing the limits of connections (table inet %s), which a running daemon may hold: %w",
				Table(lan), err)
		}
	}
}
