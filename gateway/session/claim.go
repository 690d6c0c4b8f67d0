// Clients without a lease, on networks where another server leases the addresses.

package session

import (
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Claim is Lease for a client that was seen to use its address, where this gateway leases none. It fails with ErrTaken
// while another client has the address, and with ErrAddresses where the MAC address has most addresses already. A
// client that has the address stays as it is. Claims that come at the same time are decided as if one came after the
// other, and share writes to the disk.
func (t *Table) Claim(key Key, end time.Time, most int) error {
	key.Addr = key.Addr.Unmap()
	if !key.Addr.Is4() {
		return fmt.Errorf("claim %s: only IPv4 addresses can be claimed", key)
	}
	if err := t.holdOpen(); err != nil {
		return fmt.Errorf("claim %s: %w", key, err)
	}
	defer t.openLock.RUnlock()
	t.mu.Lock()
	if other := t.byFurtherAddr[key.Addr]; other != nil {
		defer t.mu.Unlock()
		if other.key.MAC != key.MAC {
			return fmt.Errorf("claim %s: %w", key, ErrTaken)
		}
		return nil
	}
	t.mu.Unlock()
	c, err := t.holdOrAdd(key.Addr)
	if err != nil {
		return fmt.Errorf("claim %s: %w", key, err)
	}
	defer t.release(c)
	switch {
	case c.state == "" && !t.reserveAddress(c, key.MAC, most):
		err = ErrAddresses
	case c.state == "":
		err = t.lease(c, key, "", t.clock.tableTime(end), nil)
	case c.key != key:
		err = ErrTaken
	case !c.inDatapath: // the data path failed the last time
		err = t.setDatapath(c, &c.entry)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", key, err)
	}
	return nil
}

// Keep has a client's lease last until end at least, if the client still has the address.
func (t *Table) Keep(key Key, end time.Time) error {
	if err := t.holdOpen(); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	defer t.openLock.RUnlock()
	c := t.lockClient(key.Addr.Unmap())
	if c == nil {
		return nil
	}
	defer t.release(c)
	if c.key != key || t.clock.tableTime(end) <= c.leaseEnd {
		return nil
	}
	if err := t.lease(c, key, c.hostname, t.clock.tableTime(end), nil); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return nil
}

// reserveAddress counts an address that a new client is about to get, until it is published or removed, unless the MAC
// address has most. op must be held.
func (t *Table) reserveAddress(c *client, mac datapath.MAC, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.macs.count(mac, most) >= most {
		return false
	}
	t.macs.put(c, mac)
	return true
}

// ForgetStranger is Forget for a client without a session. A client that has logged in, or is just being admitted,
// stays. It reports whether the client is gone.
func (t *Table) ForgetStranger(key Key) (bool, error) { return t.forget(key, true) }
