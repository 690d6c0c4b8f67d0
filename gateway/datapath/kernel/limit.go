package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// burst is the traffic that a silent client may send at once, as the time in which its rate would allow it, and
// burstBytes the least of it: an aggregated packet.
const (
	burst      = time.Second
	burstBytes = 2 * 65536
)

// directions are the hooks of tc at an interface where a client's rates are enforced.
var directions = [...]struct {
	hook uint32
	rate func(datapath.Limits) uint64 // bits of IP packets a second
}{
	{netlink.HANDLE_MIN_INGRESS, func(l datapath.Limits) uint64 { return l.UpBps }},
	{netlink.HANDLE_MIN_EGRESS, func(l datapath.Limits) uint64 { return l.DownBps }},
}

// police has the kernel drop packets from and to a client beyond its rates. If the rates are unchanged, the rest of the
// burst is kept.
func (l *pppoeSession) police(before, limits datapath.Limits) error {
	if limits.UpBps == 0 && limits.DownBps == 0 && !l.policed {
		return nil
	}
	if !l.policed {
		q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.index, Parent: netlink.HANDLE_CLSACT,
			Handle: netlink.MakeHandle(0xffff, 0)}}
		if err := netlink.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
			// which another program added, or a former daemon right before its end
			return fmt.Errorf("limiting rates: %w (the kernel needs sch_ingress, cls_matchall and act_police)", err)
		}
	}
	for _, d := range directions {
		bps := d.rate(limits)
		if l.policed && bps == d.rate(before) {
			continue
		}
		if err := limit(l.index, d.hook, bps); err != nil {
			return fmt.Errorf("limiting rates: %w (the kernel needs cls_matchall and act_police)", err)
		}
	}
	l.policed = true
	return nil
}

// limit sets the rate of one direction; 0: none.
func limit(index int, hook uint32, bps uint64) error {
	f := &netlink.MatchAll{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: hook, Priority: 1, Handle: 1, Protocol: unix.ETH_P_ALL}}
	if bps > 0 {
		p := netlink.NewPoliceAction()
		p.Rate = uint32(min(max(bps/8, 1), math.MaxUint32))
		p.Burst = uint32(min(max(bps/8*uint64(burst/time.Second), burstBytes), math.MaxUint32))
		p.Mtu, p.ExceedAction = burstBytes, netlink.TC_POLICE_SHOT
		f.Actions = []netlink.Action{p}
		return netlink.FilterReplace(f)
	}
	present, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, hook)
	if err != nil || len(present) == 0 {
		return err
	}
	return netlink.FilterDel(f)
}

// readDropped reads how many packets an interface's limits have dropped.
func readDropped(index int) (dropped uint64, err error) {
	for _, d := range directions {
		present, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, d.hook)
		if err != nil {
			return 0, fmt.Errorf("reading what the interface %d has dropped: %w", index, err)
		}
		for _, f := range present {
			m, ok := f.(*netlink.MatchAll)
			if !ok || len(m.Actions) == 0 {
				continue
			}
			if s := m.Actions[0].Attrs().Statistics; s != nil && s.Queue != nil {
				dropped += uint64(s.Queue.Drops)
			}
		}
	}
	return dropped, nil
}

// quotaEvery is how often clients' counters are compared with their quotas while a client may reach one. seenEvery is
// how often the counters are read at all: so precisely it is known when a client was last seen, and so much is lost of
// the counts if another program removes the rules.
const (
	quotaEvery = 100 * time.Millisecond
	seenEvery  = 5 * time.Second
)

// followQuotas reads and compares the counters, by quotaEvery and seenEvery, until the data path is closed.
func (d *Datapath) followQuotas() {
	every := time.NewTicker(quotaEvery)
	defer every.Stop()
	for n := 1; ; n++ {
		select {
		case <-d.ended:
			return
		case <-every.C:
		}
		if n%int(seenEvery/quotaEvery) == 0 || d.someDue(time.Now()) {
			d.compare(d.bar)
		}
	}
}

// compare reads all clients' counters, in two requests however many clients have quotas, and calls end for clients that
// have used their quota up.
func (d *Datapath) compare(end func(*client) error) {
	if err := d.lookAtAll(); err != nil {
		d.cfg.Log.Error("reading clients' counters: quotas are compared later", "lan", d.net.Interface, "err", err)
		d.mu.Lock()
		d.due = time.Now().Add(seenEvery)
		d.mu.Unlock()
		return
	}
	now := time.Now()
	d.mu.Lock()
	all := slices.Collect(maps.Keys(d.bounded))
	d.due = time.Time{}
	d.mu.Unlock()
	for _, c := range all {
		if err := d.exhaust(c, now, end); err != nil {
			d.cfg.Log.Error("ending a client's quota", "client", c.addr, "err", err)
		}
	}
}

// someDue reports whether a client may have used up a quota.
func (d *Datapath) someDue(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.due.IsZero() && !now.Before(d.due)
}

// scheduleQuota notes the earliest time at which a client may have used up its quota. So counters are read often only
// while a client is close to its quota. c.mu and mu are held.
func (d *Datapath) scheduleQuota(c *client, now time.Time) {
	l, n := c.Limits, c.traffic()
	for _, q := range [...]struct{ quota, used uint64 }{
		{l.UpBytes, n.up.Bytes}, {l.DownBytes, n.down.Bytes}, {l.TotalBytes, n.up.Bytes + n.down.Bytes}} {
		if q.quota == 0 {
			continue
		}
		left := float64(q.quota-min(q.used, q.quota)) * 8 / d.fastestBps
		if instant := now.Add(time.Duration(min(left/2, seenEvery.Seconds()) * float64(time.Second))); d.due.IsZero() ||
			instant.Before(d.due) {
			d.due = instant // left/2, because packets in both directions may use the quota
		}
	}
}

// fastest is the most that a LAN is taken to carry one way, bits a second: its own speed, and no less than 10 Gbit/s,
// because virtual interfaces carry more than they say.
func fastest(lan string) float64 {
	mbps := 10_000.
	if text, err := os.ReadFile("/sys/class/net/" + lan + "/speed"); err == nil {
		if n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err == nil {
			mbps = max(mbps, n)
		}
	}
	return mbps * 1e6
}

// bound notes in d.bounded whether a client has quotas. c.mu is held.
func (d *Datapath) bound(c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := c.Limits
	if c.Admitted && (l.UpBytes != 0 || l.DownBytes != 0 || l.TotalBytes != 0) {
		d.bounded[c] = true
		d.scheduleQuota(c, time.Now())
	} else {
		delete(d.bounded, c)
	}
}

// usedUp reports whether a client's traffic, as last read, has reached a quota. c.mu is held.
func (c *client) usedUp(l datapath.Limits) bool {
	n := c.traffic()
	over := func(quota, used uint64) bool { return quota != 0 && used >= quota }
	return over(l.UpBytes, n.up.Bytes) || over(l.DownBytes, n.down.Bytes) || over(l.TotalBytes, n.up.Bytes+n.down.Bytes)
}

// exhaust calls end for a client whose quota, by the last reading, is used up. For others it notes when that may be.
func (d *Datapath) exhaust(c *client, now time.Time, end func(*client) error) error {
	d.replacing.RLock()
	defer d.replacing.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usedUp(c.Limits) {
		return end(c)
	}
	if c.pppoe != nil {
		d.mu.Lock()
		d.scheduleQuota(c, now)
		d.mu.Unlock()
	}
	return nil
}

// mtuOf is the MTU of a client's PPPoE session.
func mtuOf(c datapath.Client) int { return int(cmp.Or(c.MTU, datapath.PPPoEMTU)) }
