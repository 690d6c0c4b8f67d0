// How the data path's counters become the counts of a session, and its limits become what the data path enforces.

package session

import (
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// reading is the value of a client's counters in the data path at some time.
type reading struct {
	Epoch uint64 // of the counters
	Counts
}

func readingOf(c datapath.Counters) reading {
	return reading{c.Epoch, Counts{c.UpBytes, c.UpPackets, c.DownBytes, c.DownPackets, c.DroppedPackets}}
}

// count adds a reading of an address's counters to its session.
func (t *Table) count(e *entry, now datapath.Counters) {
	if !now.Seen.IsZero() {
		// Ignore the time of a packet from before this session, or by a clock ahead of ours.
		e.seen = min(max(e.seen, t.clock.tableTime(now.Seen)), max(e.seen, t.clock.now()))
	}
	last := e.read
	if now.Epoch != last.Epoch {
		last = reading{Epoch: now.Epoch} // counters restarted: keep what was counted, count from 0
	}
	c := &e.counts
	grow(&c.UpBytes, &last.UpBytes, now.UpBytes)
	grow(&c.UpPackets, &last.UpPackets, now.UpPackets)
	grow(&c.DownBytes, &last.DownBytes, now.DownBytes)
	grow(&c.DownPackets, &last.DownPackets, now.DownPackets)
	grow(&c.DroppedPackets, &last.DroppedPackets, now.DroppedPackets)
	e.read = last
}

// grow adds a counter's increase since the last reading to count. A reading older than the last one adds nothing.
func grow(count, read *uint64, now uint64) {
	if now > *read {
		*count += now - *read
		*read = now
	}
}

// packets is the number of packets of both directions, dropped ones included.
func (c *Counts) packets() uint64 { return c.UpPackets + c.DownPackets + c.DroppedPackets }

// shut returns the data path's entry for a client that is not admitted.
func shut(of *client, e *entry) datapath.Client {
	return datapath.Client{ID: of.identity, Addrs: e.addrs(), MAC: e.linkMAC(), Routes: e.extraOrZero().delegated}
}

// permit returns the data path's entry for a client. It admits the client, with what is left of its limits, if the
// client has a session whose time and lease have not ended.
func (t *Table) permit(of *client, e *entry) datapath.Client {
	c := shut(of, e)
	end := e.sessionEnd()
	if e.state != Authenticated || min(end, e.leaseEnd) <= t.clock.now() { // expired, though not ended yet
		return c
	}
	line := e.extraOrZero().pppoe
	c.Admitted, c.Until, c.Session, c.MTU = true, t.clock.time(end), line.Session, line.MTU
	c.Routes = slices.Concat(c.Routes, line.Routes)
	l, n, read := e.limits(), &e.counts, &e.read
	c.Limits = datapath.Limits{
		UpBps: l.UpBps, DownBps: l.DownBps, Connections: l.Connections,
		UpBytes:    stopAt(l.UpBytes, n.UpBytes, read.UpBytes),
		DownBytes:  stopAt(l.DownBytes, n.DownBytes, read.DownBytes),
		TotalBytes: stopAt(l.TotalBytes, n.UpBytes+n.DownBytes, read.UpBytes+read.DownBytes),
	}
	return c
}

// stopAt returns the counter's value at which a quota is used up, given how much had been counted when the counter was
// read; 0 for no quota.
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

// bytesLeft returns the bytes until the first of the quotas is used up, and the largest number when there is no quota.
func (e *entry) bytesLeft() uint64 {
	least := uint64(math.MaxUint64)
	for _, q := range quotas(e.limits(), &e.counts) {
		least = min(least, q.Left)
	}
	return least
}

// sessionEnd is when the time limit ends the session; zeroTime: there is no limit.
func (e *entry) sessionEnd() tableTime {
	if e.limits().SessionTimeout == 0 {
		return zeroTime
	}
	return e.began.after(e.limits().SessionTimeout)
}

// idleEnd is when the session ends unless the client sends again; zeroTime: there is no limit.
func (e *entry) idleEnd() tableTime {
	if e.limits().IdleTimeout == 0 {
		return zeroTime
	}
	return e.seen.after(e.limits().IdleTimeout)
}
