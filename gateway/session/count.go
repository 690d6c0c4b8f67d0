package session

import (
	"math"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// count takes a reading of an address's counters into its session.
func (t *Table) count(e *entry, now datapath.Counters) {
	if !now.Seen.IsZero() {
		// A packet from before this session, or by a clock ahead of ours, is none
		// of it.
		e.seen = min(max(e.seen, t.clock.moment(now.Seen)), max(e.seen, t.clock.now()))
	}
	was := e.read
	if now.Epoch != was.Epoch {
		was = datapath.Counters{Epoch: now.Epoch} // what was counted stands, and counting began anew
	}
	c := &e.counts
	grow(&c.UpBytes, &was.UpBytes, now.UpBytes)
	grow(&c.UpPackets, &was.UpPackets, now.UpPackets)
	grow(&c.DownBytes, &was.DownBytes, now.DownBytes)
	grow(&c.DownPackets, &was.DownPackets, now.DownPackets)
	grow(&c.DroppedPackets, &was.DroppedPackets, now.DroppedPackets)
	e.read = was
}

// grow adds to count what a counter has grown since it was read. A reading that
// was overtaken by a newer one adds nothing.
func grow(count, read *uint64, now uint64) {
	if now > *read {
		*count += now - *read
		*read = now
	}
}

// packets tell whether anything happened.
func (c *Counts) packets() uint64 { return c.UpPackets + c.DownPackets + c.DroppedPackets }

// permit is what the data path is told of a client.
func (t *Table) permit(e *entry) datapath.Client {
	c := datapath.Client{Addr: e.key.Addr, MAC: e.key.MAC}
	end := e.sessionEnd()
	if e.state != Authenticated || min(end, e.leaseEnd) <= t.clock.now() { // over, though not ended yet
		return c
	}
	c.Admitted, c.Until = true, t.clock.time(end)
	l, n, read := &e.limits, &e.counts, &e.read
	c.Limits = datapath.Limits{
		UpBps: l.UpBps, DownBps: l.DownBps,
		UpBytes:    stopAt(l.UpBytes, n.UpBytes, read.UpBytes),
		DownBytes:  stopAt(l.DownBytes, n.DownBytes, read.DownBytes),
		TotalBytes: stopAt(l.TotalBytes, n.UpBytes+n.DownBytes, read.UpBytes+read.DownBytes),
	}
	return c
}

// stopAt is the counter's value at which a quota is used up, of which a part has
// been counted when the counter was read; 0 for no quota.
func stopAt(quota, counted, read uint64) uint64 {
	switch left := quota - counted; {
	case quota == 0:
		return 0
	case quota <= counted:
		return max(read, 1)
	case left > math.MaxUint64-read:
		return math.MaxUint64
	default:
		return read + left
	}
}

// bytesLeft are those until the first of the quotas is used up; all there can be
// when there is none.
func (e *entry) bytesLeft() uint64 {
	least := uint64(math.MaxUint64)
	for _, q := range [...]struct{ quota, used uint64 }{
		{e.limits.UpBytes, e.counts.UpBytes},
		{e.limits.DownBytes, e.counts.DownBytes},
		{e.limits.TotalBytes, e.counts.UpBytes + e.counts.DownBytes},
	} {
		if q.quota > 0 {
			least = min(least, q.quota-min(q.used, q.quota))
		}
	}
	return least
}

func (e *entry) sessionEnd() moment {
	if e.limits.SessionTimeout == 0 {
		return never
	}
	return e.began.after(e.limits.SessionTimeout)
}

func (e *entry) idleEnd() moment {
	if e.limits.IdleTimeout == 0 {
		return never
	}
	return e.seen.after(e.limits.IdleTimeout)
}
