// The clients whose packets the kernel passes in the fast mode, and the counting of these packets.

package nfqueue

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// fast is the state of the fast mode: which clients the kernel passes without the daemon, and where packets are
// redirected. d.mu guards it.
type fast struct {
	open    bool    // the gate
	course  course  // the course of packets that bypass the stack
	refused *course // a course the kernel refused; nil: none
	reason  string  // reason of the present course
	// unrouted: there is no default route, so the chain of that name exists.
	unrouted bool
	passed   map[netip.Addr]*passedClient
	// counted has the addresses of all clients that the kernel has ever passed: their counters stay.
	counted map[netip.Addr]*addrCounters
	stop    func() // closes the gate

	captures []*capture // one for each queue; not guarded
}

// passedClient is a client whose packets the kernel passes. It has no limit except an end of its admission.
type passedClient struct {
	mac    datapath.MAC
	expiry *time.Timer // nil: no end
}

// addrCounters are the last reading of an address's counters in the kernel, and when they last grew.
type addrCounters struct {
	added   tally     // the part that was added to the judges' counts: it counts for quotas
	last    tally     // total at the last reading
	base    tally     // the part from counters that no longer exist
	counted bool      // there are counters
	grewAt  time.Time // when an increase was last found
}

// tally is the traffic that the kernel has passed for an address.
type tally struct{ up, down nftables.Counted }

func (t *tally) add(o tally) {
	t.up, t.down = t.up.Plus(o.up), t.down.Plus(o.down)
}

func (t tally) minus(o tally) tally {
	return tally{
		nftables.Counted{Packets: t.up.Packets - o.up.Packets, Bytes: t.up.Bytes - o.up.Bytes},
		nftables.Counted{Packets: t.down.Packets - o.down.Packets, Bytes: t.down.Bytes - o.down.Bytes},
	}
}

func newFast() *fast {
	return &fast{passed: map[netip.Addr]*passedClient{}, counted: map[netip.Addr]*addrCounters{}, stop: func() {}}
}

// Names of an address's counters.
func upCounter(a netip.Addr) string   { return "up_" + a.String() }
func downCounter(a netip.Addr) string { return "down_" + a.String() }

// judgeAgainBefore is how long before its end a client is judged by the daemon again, because the judges enforce the
// time to the packet.
const judgeAgainBefore = 50 * time.Millisecond

// letKernelPass has the kernel pass a client's packets. d.mu is held.
func (d *Datapath) letKernelPass(addr netip.Addr, c datapath.Client) error {
	p, existed := d.fast.passed[addr]
	if existed && p.expiry != nil {
		p.expiry.Stop()
	}
	next := &passedClient{mac: c.MAC}
	left := time.Until(c.Until) - judgeAgainBefore
	if !c.Until.IsZero() && left <= 0 {
		return d.judgeAgain(addr)
	}
	if !existed || p.mac != c.MAC {
		var b nftables.Batch
		if existed {
			d.unpass(&b, addr, p.mac)
		}
		h := d.fast.counted[addr]
		if h == nil {
			h = new(addrCounters)
		}
		d.letPass(&b, addr, c.MAC, !h.counted)
		if err := d.rules.Commit(&b); err != nil {
			return err
		}
		h.counted = true
		d.fast.counted[addr] = h
	}
	if !c.Until.IsZero() {
		next.expiry = time.AfterFunc(left, func() { d.expire(addr, next) })
	}
	d.fast.passed[addr] = next
	return nil
}

// letPass adds a client to the maps, and creates missing counters.
func (d *Datapath) letPass(b *nftables.Batch, addr netip.Addr, mac datapath.MAC, count bool) {
	for _, t := range d.passTables() {
		if count {
			b.AddCounter(t, upCounter(addr))
			b.AddCounter(t, downCounter(addr))
		}
		up, down := d.keys(t, addr, mac)
		b.AddElements(t, setUp, nftables.Element{Key: up, Counter: upCounter(addr)})
		b.AddElements(t, setDown, nftables.Element{Key: down, Counter: downCounter(addr)})
	}
}

// unpass removes a client from the maps. Its counters stay.
func (d *Datapath) unpass(b *nftables.Batch, addr netip.Addr, mac datapath.MAC) {
	for _, t := range d.passTables() {
		up, down := d.keys(t, addr, mac)
		b.DeleteElements(t, setUp, nftables.Element{Key: up})
		b.DeleteElements(t, setDown, nftables.Element{Key: down})
	}
}

// keys returns a client's keys in the maps of a table.
func (d *Datapath) keys(t nftables.Table, addr netip.Addr, mac datapath.MAC) (up, down []byte) {
	if t.Family == nftables.NetDev {
		return d.upKey(addr, mac), d.downKey(addr)
	}
	return pair(addr, mac), addr.AsSlice()
}

// expire ends a client's passing when its timer fires, unless the client was changed meanwhile.
func (d *Datapath) expire(addr netip.Addr, p *passedClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fast.passed[addr] != p {
		return
	}
	if err := d.judgeAgain(addr); err != nil {
		d.cfg.Log.Error("ending a client's time; its packets go on until that succeeds", "client", addr, "err", err)
		p.expiry = time.AfterFunc(gateEvery, func() { d.expire(addr, p) })
	}
}

// judgeAgain has a client's packets judged by the daemon again, if the kernel passed them, and returns when packets in
// progress are counted. d.mu is held.
func (d *Datapath) judgeAgain(addr netip.Addr) error {
	if d.fast == nil {
		return nil
	}
	p, existed := d.fast.passed[addr]
	if !existed {
		return nil
	}
	var b nftables.Batch
	d.unpass(&b, addr, p.mac)
	if err := d.rules.Commit(&b); err != nil {
		return err
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	delete(d.fast.passed, addr)
	// The kernel waits, some 10 ms, until each CPU has passed a quiescent state (RCU). If that is not supported, at most
	// one packet of each CPU is missing from the counts.
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	return d.count(addr)
}

// count adds the packets that the kernel has passed for a client to the judges' counts.
func (d *Datapath) count(addr netip.Addr) error {
	n, err := d.uncounted(addr)
	if err != nil {
		return err
	}
	var c datapath.Counters
	addTally(&c, n)
	d.fast.counted[addr].added.add(n)
	return d.table.AddPassed(addr, c)
}

// uncounted reads the packets that the kernel has passed for an address and that are not in the judges' counts yet.
func (d *Datapath) uncounted(addr netip.Addr) (tally, error) {
	h := d.fast.counted[addr]
	n := h.base
	for _, t := range d.passTables() {
		if !h.counted {
			break
		}
		up, err := d.rules.Counter(t, upCounter(addr))
		if err != nil {
			return tally{}, err
		}
		down, err := d.rules.Counter(t, downCounter(addr))
		if err != nil {
			return tally{}, err
		}
		n.add(tally{up, down})
	}
	h.record(n, time.Now())
	return n.minus(h.added), nil
}

// addPassed adds the packets that the kernel has passed to a client's counters. d.mu is held.
func (d *Datapath) addPassed(addr netip.Addr, c *datapath.Counters) error {
	h := d.fast.counted[addr]
	if h == nil {
		return nil
	}
	n, err := d.uncounted(addr)
	if err != nil {
		return err
	}
	addTally(c, n)
	if h.grewAt.After(c.Seen) {
		c.Seen = h.grewAt
	}
	return nil
}

func addTally(c *datapath.Counters, n tally) {
	c.UpBytes, c.UpPackets = c.UpBytes+n.up.Bytes, c.UpPackets+n.up.Packets
	c.DownBytes, c.DownPackets = c.DownBytes+n.down.Bytes, c.DownPackets+n.down.Packets
}

// record records whether an address's counters have grown since the last reading.
func (h *addrCounters) record(n tally, now time.Time) {
	if n != h.last {
		h.last, h.grewAt = n, now
	}
}

// allPassed sums the packets that the kernel has passed, and the part of them that is in the judges' counts already. It
// updates each address's last reading.
func (d *Datapath) allPassed() (sum, counted tally, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]nftables.Counted, 2*len(d.fast.counted))
	for _, t := range d.passTables() {
		if err := d.rules.Counters(t, func(name string, n nftables.Counted) { all[name] = all[name].Plus(n) }); err != nil {
			return sum, counted, err
		}
	}
	now := time.Now()
	for addr, h := range d.fast.counted {
		n := h.base
		n.add(tally{all[upCounter(addr)], all[downCounter(addr)]})
		h.record(n, now)
		sum.add(n)
		counted.add(h.added)
	}
	return sum, counted, nil
}
