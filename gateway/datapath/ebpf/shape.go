// Which clients' packets beyond a rate wait in queues (queue.go), and which are dropped.

package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Shaping says whether packets beyond a client's rate wait or are dropped.
type Shaping string

const (
	// ShapingAuto holds them back until it is their turn where the interface has a queue for that, or one that the kernel
	// made by itself, which is replaced until Remove. Elsewhere they are dropped.
	ShapingAuto  Shaping = "auto"
	ShapingNever Shaping = "never" // they are dropped
)

// rates are the rate limits of a client, bits a second; 0: none.
type rates struct{ up, down uint64 }

// shaping delays packets beyond a client's rate in queues instead of dropping them. The queues are made for the first
// client that has a rate.
type shaping struct {
	timed bool // programs may set when a packet leaves

	mu        sync.Mutex // guards what follows
	opened    bool
	wan, lan  queue
	heldRates map[uint32]rates // by slot: of clients of which packets are held
	policed   map[uint32]bool  // by slot: of those, which the queues refused, so that packets are dropped
	holders   string           // as logged last
}

// beginShaping finds out which queues the kernel has.
func (d *Datapath) beginShaping(lan, wan *net.Interface) {
	s := &d.shaping
	s.heldRates, s.policed = map[uint32]rates{}, map[uint32]bool{}
	s.wan, s.lan = queue{dev: wan, major: wanQueue, dir: d.cfg.PinDir}, queue{dev: lan, major: lanQueue, dir: d.cfg.PinDir}
	s.timed = d.cfg.Shaping == ShapingAuto && features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbSetTstamp) == nil
}

// adoptShaping holds the packets of a former daemon's clients, and puts default queues back where packets are no longer
// held: at interfaces that this one does not use, or everywhere. A queue that cannot be changed is no reason not to
// start.
func (d *Datapath) adoptShaping() error {
	s := &d.shaping
	left := errors.Join(s.wan.recall(), s.lan.recall())
	if d.cfg.Shaping == ShapingAuto {
		left = errors.Join(left, leaveQueues(d.cfg.PinDir, &s.wan, &s.lan))
	} else {
		left = errors.Join(left, s.wan.remove(), s.lan.remove(), leaveQueues(d.cfg.PinDir))
	}
	if left != nil {
		d.cfg.Log.Error("a queue that holds packets stays, and holds none", "err", left)
	}
	if d.cfg.Shaping != ShapingAuto {
		return nil
	}
	var all []uint32
	err := d.eachClientAt(func(place uint32, c gatewayClient) {
		if c.Flags&limited != 0 {
			all = append(all, slotOf(place, c))
		}
	})
	err = errors.Join(err, d.eachOnly6(func(slot uint32, c gatewayClient) {
		if c.Flags&limited != 0 {
			all = append(all, slot)
		}
	}))
	for _, slot := range all {
		var l gatewayLimits
		if err := d.objs.ClientLimits.Lookup(slot, &l); err != nil {
			return fmt.Errorf("reading a client's limits: %w", err)
		}
		d.shape(slot, rates{bps(l.UpPsPerByte), bps(l.DownPsPerByte)})
	}
	return err
}

// shape has the packets of the client in a slot held back to its rates, or no longer. Errors of the queues are logged,
// and the change is tried again; meanwhile packets beyond the client's rates are dropped. After detach it does nothing.
func (d *Datapath) shape(slot uint32, r rates) {
	s := &d.shaping
	if d.cfg.Shaping != ShapingAuto {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.heldRates[slot]
	if before == r || d.isDetached() {
		return
	}
	if r == (rates{}) {
		delete(s.heldRates, slot)
		delete(s.policed, slot)
		if err := errors.Join(d.dequeue(slot), s.release(slot)); err != nil {
			d.cfg.Log.Error("a client without rates keeps a queue", "client", d.owner(slot), "err", err)
		}
		return
	}
	if !s.opened {
		for _, q := range []*queue{&s.wan, &s.lan} {
			d.openQueue(q)
		}
		s.opened = true
		d.logShaping()
	}
	s.heldRates[slot] = r
	err := d.enqueue(slot, r)
	if err == nil {
		err = d.stampShaping()
	}
	if err != nil && !d.isDetached() {
		d.cfg.Log.Error(
			"packets of a client beyond its rates are dropped, not held back; trying again", "client", d.owner(slot), "err", err)
	}
}

// enqueue has a client's packets held, by classes of its rates where there are such; with an error they are dropped. mu
// is held.
func (d *Datapath) enqueue(slot uint32, r rates) error {
	s := &d.shaping
	err := s.makeClasses(slot, r)
	if err == nil {
		err = d.objs.ClientQueues.Update(slot, gatewayQueues{Class: uint32(minor(slot))}, ebpf.UpdateNoExist)
		if errors.Is(err, ebpf.ErrKeyExist) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("entering a client's queue: %w", err)
		}
	}
	s.policed[slot] = err != nil
	if err != nil {
		return errors.Join(err, d.dequeue(slot))
	}
	return nil
}

// dequeue has packets of a client beyond its rates dropped.
func (d *Datapath) dequeue(slot uint32) error {
	err := d.objs.ClientQueues.Delete(slot)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("removing a client's queue: %w", err)
	}
	return nil
}

const judged = 0x6a77 // JUDGED in packet.h, which marks other packets

// minor is the number of the classes of the client of a slot; 0: there are not enough.
func minor(slot uint32) uint16 {
	if slot++; slot >= judged {
		slot++
	}
	if slot > mostClasses {
		return 0
	}
	return uint16(slot)
}

// openQueue opens a queue. On error nothing holds packets back. If detach was run meanwhile, it removes the queue
// again. mu is held.
func (d *Datapath) openQueue(q *queue) error {
	err := q.open(d.shaping.timed)
	if err == nil && q.holder == gatewayHolderHOLDER_CLASS && q.major == wanQueue {
		err = q.classify(d.objs.ClassOf)
	}
	if d.isDetached() {
		q.holder, q.reason = gatewayHolderHOLDER_NONE, "gatewayd detach was run"
		return errors.Join(err, q.remove())
	}
	if err != nil {
		q.holder, q.reason = gatewayHolderHOLDER_NONE, err.Error()
	}
	return err
}

// makeClasses makes a client's classes where there are such. mu is held.
func (s *shaping) makeClasses(slot uint32, r rates) error {
	if minor(slot) == 0 {
		return nil
	}
	for q, bps := range map[*queue]uint64{&s.wan: r.up, &s.lan: r.down} {
		if q.holder != gatewayHolderHOLDER_CLASS || bps == 0 {
			continue
		}
		if err := q.class(minor(slot), bps); err != nil {
			return err
		}
	}
	return nil
}

// release removes a client's classes. mu is held.
func (s *shaping) release(slot uint32) (err error) {
	for _, q := range []*queue{&s.wan, &s.lan} {
		if q.holder == gatewayHolderHOLDER_CLASS && minor(slot) != 0 {
			err = errors.Join(err, q.removeClass(minor(slot)))
		}
	}
	return err
}

// stampShaping has the programs hold packets for some seconds more. mu is held.
func (d *Datapath) stampShaping() error {
	s := &d.shaping
	err := d.objs.RateShaping.Put(
		uint32(0), gatewayShaping{Until: now() + uint64(redirectLife), Up: uint32(s.wan.holder), Down: uint32(s.lan.holder)})
	if err != nil {
		return fmt.Errorf("having packets held: %w", err)
	}
	return nil
}

// keepShaping looks whether the queues are as they were, and renews the stamp. Where somebody has put another queue in
// the place of one, packets are dropped instead until that can hold them.
func (d *Datapath) keepShaping() error {
	s := &d.shaping
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened || d.isDetached() {
		return nil
	}
	var all error
	changed := false
	for _, q := range []*queue{&s.wan, &s.lan} {
		before := q.holder
		root, parts, err := q.root()
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		if q.hasNote && q.isOwn(root) {
			all = errors.Join(all, q.writeNote())
		}
		holder, reason := q.findHolder(root, parts, s.timed)
		if holder == before && !(before == gatewayHolderHOLDER_NONE && q.replaceable(root)) {
			q.reason = reason
			continue
		}
		changed = true
		all = errors.Join(all, d.openQueue(q))
	}
	if d.isDetached() {
		return nil
	}
	var refused error // as of one of perhaps many clients
	for place, r := range s.heldRates {
		if changed || s.policed[place] {
			refused = cmp.Or(d.enqueue(place, r), refused)
		}
	}
	d.logShaping()
	return errors.Join(all, refused, d.followClasses(), d.stampShaping())
}

// logShaping logs where packets are held, once. mu is held.
func (d *Datapath) logShaping() {
	s := &d.shaping
	words := map[gatewayHolder]string{gatewayHolderHOLDER_TIME: "by fq", gatewayHolderHOLDER_CLASS: "by htb"}
	for _, q := range []*queue{&s.wan, &s.lan} {
		if q.holder == gatewayHolderHOLDER_NONE {
			words[q.holder] = "dropped"
		}
	}
	holders := words[s.wan.holder] + s.wan.reason + s.wan.advice + words[s.lan.holder] + s.lan.reason + s.lan.advice
	if holders == s.holders {
		return
	}
	s.holders = holders
	for name, q := range map[string]*queue{"sent": &s.wan, "received": &s.lan} {
		if q.holder == gatewayHolderHOLDER_NONE {
			d.cfg.Log.Warn("packets beyond clients' rates are dropped, not held back", "packets", name, "interface", q.dev.Name,
				"why", q.reason)
			continue
		}
		d.cfg.Log.Info("packets beyond clients' rates are held back", "packets", name, "interface", q.dev.Name, "how",
			words[q.holder])
		if q.advice != "" {
			d.cfg.Log.Warn("packets may wait although nothing holds them back", "packets", name, "interface", q.dev.Name, "why",
				q.advice)
		}
	}
}

// bps is a rate of limits, bits a second.
func bps(psPerByte uint64) uint64 {
	if psPerByte == 0 {
		return 0
	}
	return 8e12 / psPerByte
}

// shapedRates are the rates of a client's entry.
func shapedRates(c datapath.Client) rates {
	if !c.Admitted {
		return rates{}
	}
	return rates{c.Limits.UpBps, c.Limits.DownBps}
}
