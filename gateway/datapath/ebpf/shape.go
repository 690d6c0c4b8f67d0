package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Shaping is what becomes of packets beyond a client's rate.
type Shaping string

const (
	// ShapingAuto holds them back until it is their turn where the interface has a queue for that, or one that the kernel
	// made by itself, which is replaced until Remove. Elsewhere they are dropped.
	ShapingAuto  Shaping = "auto"
	ShapingNever Shaping = "never" // they are dropped
)

// rates are a client's, bits a second; 0: none.
type rates struct{ up, down uint64 }

// shaping holds clients' packets back. The queues are made for the first client with a rate.
type shaping struct {
	timed bool // programs may set when a packet leaves

	mu       sync.Mutex // guards what follows
	opened   bool
	wan, lan queue
	held     map[uint32]rates // by place: of clients of which packets are held
	told     string           // what was logged last
}

// beginShaping finds out what the kernel can, and puts default queues back where packets are no longer held.
func (d *Datapath) beginShaping(lan, wan *net.Interface) error {
	s := &d.shaping
	s.held = map[uint32]rates{}
	s.wan, s.lan = queue{dev: wan, major: wanQueue}, queue{dev: lan, major: lanQueue}
	if d.cfg.Shaping != ShapingAuto {
		return errors.Join(s.wan.remove(), s.lan.remove())
	}
	s.timed = features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbSetTstamp) == nil
	return nil
}

// adoptShaping holds the packets of a former daemon's clients.
func (d *Datapath) adoptShaping() error {
	if d.cfg.Shaping != ShapingAuto {
		return nil
	}
	var all []uint32
	err := d.eachClientAt(func(at uint32, c gatewayClient) {
		if c.Flags&limited != 0 {
			all = append(all, at)
		}
	})
	for _, at := range all {
		var l gatewayLimits
		if err := d.objs.ClientLimits.Lookup(at, &l); err != nil {
			return fmt.Errorf("reading a client's limits: %w", err)
		}
		if err := d.shape(at, rates{bps(l.UpPsPerByte), bps(l.DownPsPerByte)}); err != nil {
			return err
		}
	}
	return err
}

// shape has packets of the client at a place held to its rates, or no longer.
func (d *Datapath) shape(at uint32, r rates) error {
	s := &d.shaping
	if d.cfg.Shaping != ShapingAuto {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.held[at]
	if was == r {
		return nil
	}
	if r == (rates{}) {
		delete(s.held, at)
		err := d.objs.ClientQueues.Delete(at)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
		return errors.Join(err, s.release(at))
	}
	if !s.opened {
		if err := errors.Join(d.openQueue(&s.wan), d.openQueue(&s.lan)); err != nil {
			return err
		}
		s.opened = true
		d.tellShaping()
	}
	if err := s.hold(at, r); err != nil {
		return err
	}
	if !known {
		if err := d.objs.ClientQueues.Put(at, gatewayQueues{Class: uint32(minor(at))}); err != nil {
			return fmt.Errorf("entering a client's queue: %w", err)
		}
	}
	s.held[at] = r
	return d.stampShaping()
}

const judged = 0x6a77 // JUDGED in packet.h, which marks other packets

// minor is the number of the classes of the client at a place; 0: there are not enough.
func minor(at uint32) uint16 {
	if at++; at >= judged {
		at++
	}
	if at > mostClasses {
		return 0
	}
	return uint16(at)
}

// openQueue opens a queue. mu is held.
func (d *Datapath) openQueue(q *queue) error {
	if err := q.open(d.shaping.timed); err != nil || q.by != gatewayHolderHOLDER_CLASS || q.major != wanQueue {
		return err
	}
	return q.classify(d.objs.ClassOf)
}

// hold makes a client's classes where there are such. mu is held.
func (s *shaping) hold(at uint32, r rates) error {
	if minor(at) == 0 {
		return nil
	}
	for q, bps := range map[*queue]uint64{&s.wan: r.up, &s.lan: r.down} {
		if q.by != gatewayHolderHOLDER_CLASS || bps == 0 {
			continue
		}
		if err := q.class(minor(at), bps); err != nil {
			return err
		}
	}
	return nil
}

// release removes a client's classes. mu is held.
func (s *shaping) release(at uint32) (err error) {
	for _, q := range []*queue{&s.wan, &s.lan} {
		if q.by == gatewayHolderHOLDER_CLASS && minor(at) != 0 {
			err = errors.Join(err, q.forget(minor(at)))
		}
	}
	return err
}

// stampShaping has the programs hold packets for some seconds more. mu is held.
func (d *Datapath) stampShaping() error {
	s := &d.shaping
	err := d.objs.RateShaping.Put(uint32(0), gatewayShaping{Until: now() + uint64(redirectLife), Up: uint32(s.wan.by), Down: uint32(s.lan.by)})
	if err != nil {
		return fmt.Errorf("having packets held: %w", err)
	}
	return nil
}

// keepShaping looks whether the queues are as they were, and renews the stamp. Where somebody has put another queue in the
// place of one, packets are dropped instead until that can hold them.
func (d *Datapath) keepShaping() error {
	s := &d.shaping
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened || d.resigned() {
		return nil
	}
	var all error
	for _, q := range []*queue{&s.wan, &s.lan} {
		was := q.by
		root, parts, err := q.root()
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		q.by, q.why = q.holder(root, parts, s.timed)
		if q.by == was && !(was == gatewayHolderHOLDER_NONE && q.replaceable(root)) {
			continue
		}
		if err := d.openQueue(q); err != nil {
			all = errors.Join(all, err)
		}
		for at, r := range maps.All(s.held) {
			all = errors.Join(all, s.hold(at, r))
		}
	}
	d.tellShaping()
	return errors.Join(all, d.followClasses(), d.stampShaping())
}

// followClasses sets the meters of clients whose packets wait in classes by what does wait there: what passes it, and
// frames' headers, keep the programs' clock and the class's apart. mu is held.
func (d *Datapath) followClasses() error {
	s := &d.shaping
	if s.wan.by != gatewayHolderHOLDER_CLASS && s.lan.by != gatewayHolderHOLDER_CLASS {
		return nil
	}
	var up, down map[uint16]uint64
	for at, r := range s.held {
		var m gatewayMeters
		if err := d.objs.ClientMeters.Lookup(at, &m); err != nil {
			return fmt.Errorf("reading a client's meters: %w", err)
		}
		soon := now() + uint64(worthFollowing)
		if m.Up.Ns <= soon && m.Down.Ns <= soon || minor(at) == 0 {
			continue
		}
		var err error
		if up == nil {
			if up, err = s.wan.backlogs(); err == nil {
				down, err = s.lan.backlogs()
			}
			if err != nil {
				return err
			}
		}
		follow(&m.Up.Ns, up, minor(at), r.up, soon)
		follow(&m.Down.Ns, down, minor(at), r.down, soon)
		if err := d.objs.ClientMeters.Put(at, m); err != nil {
			return fmt.Errorf("setting a client's meters: %w", err)
		}
	}
	return nil
}

const worthFollowing = 20 * time.Millisecond

// follow sets a clock by the bytes that wait.
func follow(ns *uint64, waiting map[uint16]uint64, minor uint16, bps, soon uint64) {
	if waiting == nil || bps == 0 || *ns <= soon {
		return
	}
	*ns = now() + waiting[minor]*packetBytes/frameBytes*8*uint64(time.Second/time.Microsecond)/max(bps/1000, 1)
}

// tellShaping logs where packets are held, once. mu is held.
func (d *Datapath) tellShaping() {
	s := &d.shaping
	words := map[gatewayHolder]string{gatewayHolderHOLDER_TIME: "by fq", gatewayHolderHOLDER_CLASS: "by htb"}
	for _, q := range []*queue{&s.wan, &s.lan} {
		if q.by == gatewayHolderHOLDER_NONE {
			words[q.by] = "dropped"
		}
	}
	told := words[s.wan.by] + s.wan.why + s.wan.advice + words[s.lan.by] + s.lan.why + s.lan.advice
	if told == s.told {
		return
	}
	s.told = told
	for name, q := range map[string]*queue{"sent": &s.wan, "received": &s.lan} {
		if q.by == gatewayHolderHOLDER_NONE {
			d.cfg.Log.Warn("packets beyond clients' rates are dropped, not held back", "packets", name, "interface", q.dev.Name, "why", q.why)
			continue
		}
		d.cfg.Log.Info("packets beyond clients' rates are held back", "packets", name, "interface", q.dev.Name, "how", words[q.by])
		if q.advice != "" {
			d.cfg.Log.Warn("packets may wait although nothing holds them back", "packets", name, "interface", q.dev.Name, "why", q.advice)
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
