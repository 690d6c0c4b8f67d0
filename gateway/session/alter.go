package session

import (
	"fmt"
	"net/netip"
)

// Alter changes the limits of the session with an ID at an address: edit gets the present limits and changes them.
// Times still count from the session's start, and bytes too. Alter fails with ErrNoSession if the address has another
// session or none.
func (t *Table) Alter(addr netip.Addr, id string, edit func(*Limits)) error {
	err := t.ofSession(addr, id, func(c *client) error {
		next, login := c.entry, Login{Limits: *c.limits()}
		edit(&login.Limits)
		if err := login.check(); err != nil {
			return err
		}
		t.limit(&next, login.Limits)
		now, err := t.dp.Counters(c.identity)
		if err != nil {
			return err
		}
		t.count(&next, now)
		if err := t.journal.commit(change{id: c.identity, record: t.record(&next)}); err != nil {
			return err
		}
		t.arm(c, &next, t.clock.now())
		t.publish(c, next)
		return t.setDatapath(c, &next)
	})
	if err != nil {
		return fmt.Errorf("change the session %s of %s: %w", id, addr, err)
	}
	return nil
}

// Kick is End for the session with an ID at an address. It can also return ErrLater.
func (t *Table) Kick(addr netip.Addr, id string, cause Cause) error {
	_, err := t.Release(addr, id, cause)
	return err
}

// Release is Kick that returns the session with its final counts, once the data path no longer forwards for the client.
func (t *Table) Release(addr netip.Addr, id string, cause Cause) (ended Session, err error) {
	err = t.ofSession(addr, id, func(c *client) (err error) {
		next := c.withoutSession()
		ended, err = t.finish(c, &next, cause, t.clock.now())
		return err
	})
	if err != nil {
		return ended, fmt.Errorf("end the session %s of %s: %w", id, addr, err)
	}
	return ended, nil
}

// ofSession calls f with the client of an address, whose op is held meanwhile, if the client has the session with an
// ID. Otherwise it fails with ErrNoSession.
func (t *Table) ofSession(addr netip.Addr, id string, f func(*client) error) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	c := t.lockClient(addr.Unmap())
	if c == nil {
		return ErrNoSession
	}
	defer t.release(c)
	if c.state != Authenticated || c.id != id {
		return ErrNoSession
	}
	return f(c)
}
