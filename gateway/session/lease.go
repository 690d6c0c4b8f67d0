package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Lease records that a client has an address until end, or without end when end is zero. Calling it again renews the
// lease; without a change it does nothing. When another MAC had the address, that session ends with NASRequest and the
// client starts as Leased. The client may use the portal when Lease returns.
func (t *Table) Lease(key Key, hostname string, end time.Time) error {
	return t.leaseAt(key, hostname, end, nil)
}

// LeaseAt is Lease for a client of which it is known where it is attached. A session goes on when that changes.
func (t *Table) LeaseAt(key Key, hostname string, end time.Time, at Attachment) error {
	return t.leaseAt(key, hostname, end, &at)
}

func (t *Table) leaseAt(key Key, hostname string, end time.Time, at *Attachment) error {
	key.Addr = key.Addr.Unmap()
	if !key.Addr.Is4() {
		return fmt.Errorf("lease %s: only IPv4 addresses can be leased", key)
	}
	if err := t.holdOpen(); err != nil {
		return fmt.Errorf("lease %s: %w", key, err)
	}
	defer t.openLock.RUnlock()
	c, err := t.holdFirst(key.Addr)
	if err != nil {
		return fmt.Errorf("lease %s: %w", key, err)
	}
	defer t.release(c)
	if err := t.lease(c, key, cleanHostname(hostname), t.clock.tableTime(end), at); err != nil {
		return fmt.Errorf("lease %s: %w", key, err)
	}
	return nil
}

// lease gives a client a lease, and has it attached where at says; nil: where it was. op must be held.
func (t *Table) lease(c *client, key Key, hostname string, end tableTime, at *Attachment) error {
	next := c.entry
	next.hostname, next.leaseEnd = hostname, end
	if at != nil {
		next.attach(*at)
	}
	switch {
	case c.state == "" || c.key != key:
		if _, err := t.dp.Counters(c.identity); errors.Is(err, datapath.ErrForeign) {
			return err // before it is on the disk
		}
		next = entry{key: key, state: Leased, hostname: hostname, leasedAt: t.clock.now(), leaseEnd: end}
		if at != nil {
			next.attach(*at)
		}
		if _, err := t.replace(c, &next, NASRequest, t.clock.now()); err != nil {
			return err
		}
	case c.hostname == hostname && sameTime(c.leaseEnd, end) && c.attachment() == next.attachment():
	default:
		if err := t.journal.commit(change{id: c.identity, record: t.record(&next)}); err != nil {
			return err
		}
		c.inDatapath = c.inDatapath && c.linkMAC() == next.linkMAC()
		t.publish(c, next)
	}
	if !c.inDatapath {
		if err := t.setDatapath(c, &c.entry); err != nil { // the data path failed the last time
			return err
		}
	}
	return t.join(c)
}

// clockError is longer than any adjustment of the wall clock between two readings of one lease.
const clockError = 100 * time.Millisecond

// sameTime reports whether two readings are the same time, within the clock's error.
func sameTime(a, b tableTime) bool {
	if a == zeroTime || b == zeroTime {
		return a == b
	}
	return max(a, b)-min(a, b) < tableTime(time.Millisecond)
}
