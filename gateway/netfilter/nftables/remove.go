package nftables

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// releaseTimeout is how long RemoveTable waits for a daemon that holds the table to let go of it.
const releaseTimeout = 5 * time.Second

// RemoveTable removes a table, if it exists. Where a running daemon holds the table, RemoveTable waits until that
// daemon has ended or has noticed that its data path was detached. what says in errors what the table does, with its
// name.
func RemoveTable(t Table, what string) error {
	left := func() bool {
		found, err := TableExists(t)
		return err == nil && found
	}
	if !left() {
		return nil
	}
	conn, err := Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for deadline := time.Now().Add(releaseTimeout); ; time.Sleep(10 * time.Millisecond) {
		if err = conn.Remove(t); err == nil || !left() {
			return nil
		}
		if !errors.Is(err, unix.EPERM) || time.Now().After(deadline) {
			return fmt.Errorf("removing %s, which a running daemon may hold: %w", what, err)
		}
	}
}

// Remove deletes a table. It tries both forms of the request, for a held table and for one that is not held, because
// old kernels do not know the first.
func (c *Conn) Remove(t Table) (err error) {
	for _, held := range []bool{true, false} {
		b := &Batch{Held: held}
		b.DeleteTable(t)
		if err = c.Commit(b); err == nil || errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return err
}
