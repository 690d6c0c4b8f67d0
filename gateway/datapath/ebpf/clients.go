// The clients in the programs' maps (maps.h): their entries, limits and counters, and the walled garden. slots.go says
// in which table an address is.

package ebpf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
)

// Rate limits are token buckets: a silent client may send this much at once. One half lets TCP make up for what it
// leaves unused after a loss; in the other half early drops signal TCP that it reaches its rate (is_early in
// forward.h). The burst is never less than the largest aggregated packet.
const (
	burst      = time.Second
	burstBytes = 2 * 65536
)

// Set writes the limits before the entry that refers to them, so that a client never has another's limits.
func (d *Datapath) Set(c datapath.Client) error {
	v4, v6, err := d.splitAddrs(c.Addrs)
	if err != nil {
		return err
	}
	places, err := d.placesOf(v4)
	if err != nil {
		return err
	}
	networks, networks6, err := d.splitNetworks(c.Routes)
	if err != nil {
		return err
	}
	if len(c.Addrs) == 0 {
		return errors.New("a client without an address")
	}
	id, first := c.Identity(), c.Addrs[0]
	for _, addr := range v4 {
		if d.net.IsOutside(addr) {
			networks = append([]netip.Prefix{netip.PrefixFrom(addr, 32)}, networks...)
		}
	}
	slot, err := d.slot(id)
	if err != nil {
		return err
	}
	entry, err := d.entryOf(slot, c)
	if err != nil {
		return fmt.Errorf("setting the client %s: %w", id, err)
	}
	d.shape(slot, shapedRates(c))
	fresh, err := d.enterNetworks(places, first, c.Session, networks)
	if err != nil {
		return fmt.Errorf("setting the client %s: %w", id, err)
	}
	if err := d.putEntry(slot, places, holdings6{v6, networks6}, entry); err != nil {
		return fmt.Errorf("setting the client %s: %w", id, errors.Join(err, d.dropNetworks(first, fresh)))
	}
	if err := d.leaveNetworks(first, networks); err != nil {
		return fmt.Errorf("setting the client %s: %w", id, err)
	}
	for _, addr := range c.Addrs {
		d.neighbours.Set(addr, c.MAC)
	}
	d.neighbours.Flush()
	return nil
}

// entryOf returns the entry of a client's addresses, and writes the limits that it refers to.
func (d *Datapath) entryOf(slot uint32, c datapath.Client) (gatewayClient, error) {
	entry := gatewayClient{Mac: c.MAC, State: uint8(gatewayStateSTATE_PREAUTH)}
	if c.Session != 0 {
		if !d.cfg.PPPoE {
			return entry, fmt.Errorf("%w: the data path takes no PPPoE headers off", datapath.ErrNotSupported)
		}
		entry.Session, entry.Mtu = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, c.Session)),
			cmp.Or(c.MTU, datapath.PPPoEMTU)
	}
	if !c.Admitted {
		return entry, nil
	}
	entry.State = uint8(gatewayStateSTATE_ADMITTED)
	if c.Limits != (datapath.Limits{}) {
		entry.Flags = limited
		if err := d.objs.ClientLimits.Put(slot, limits(c.Limits)); err != nil {
			return entry, fmt.Errorf("writing its limits: %w", err)
		}
	}
	if !c.Until.IsZero() {
		entry.Until = monotonic(c.Until)
	}
	return entry, nil
}

const (
	limited = 1 // LIMITED in maps.h
	learned = 2 // LEARN
)

func limits(l datapath.Limits) gatewayLimits {
	out := gatewayLimits{UpBytes: l.UpBytes, DownBytes: l.DownBytes, TotalBytes: l.TotalBytes}
	out.UpPsPerByte, out.UpBurstNs = rate(l.UpBps)
	out.DownPsPerByte, out.DownBurstNs = rate(l.DownBps)
	return out
}

// rate returns the time for a byte at a rate, picoseconds, and the burst, ns.
func rate(bps uint64) (psPerByte, burstNs uint64) {
	if bps == 0 {
		return 0, 0
	}
	psPerByte = 8e12 / bps
	return psPerByte, max(uint64(burst.Nanoseconds()), burstBytes*psPerByte/1000)
}

// Remove removes a client's entry.
func (d *Datapath) Remove(id datapath.ID) error {
	slot, err := d.slot(id)
	if err != nil {
		return err
	}
	err = d.putEntry(slot, nil, holdings6{}, gatewayClient{})
	if err == nil {
		d.shape(slot, rates{})
		err = d.leaveNetworks(id.Addr(), nil)
	}
	if err != nil {
		return fmt.Errorf("removing the client %s: %w", id, err)
	}
	d.neighbours.Flush()
	return nil
}

// Counters returns the traffic of a client since the epoch.
func (d *Datapath) Counters(id datapath.ID) (datapath.Counters, error) {
	place, err := d.slot(id)
	if err != nil {
		return datapath.Counters{}, err
	}
	var c gatewayCounters
	if err := d.readCounters(place, unsafe.Slice(&c, 1)); err != nil {
		return datapath.Counters{}, fmt.Errorf("reading the counters of %s: %w", id, err)
	}
	out := datapath.Counters{
		Epoch: d.epoch, UpBytes: c.UpBytes, UpPackets: c.UpPackets,
		DownBytes: c.DownBytes, DownPackets: c.DownPackets, DroppedPackets: c.Dropped,
	}
	if c.Seen != 0 {
		out.Seen = wall(c.Seen)
	}
	return out, nil
}

// Open opens the walled garden for a prefix, or closes it.
func (d *Datapath) Open(prefix netip.Prefix, until time.Time) error {
	prefix = prefix.Masked()
	var table *ebpf.Map
	var key any
	if prefix.Addr().Is4() {
		table, key = d.objs.Garden, gatewayPrefix{Bits: uint32(prefix.Bits()), Addr: networkOrder(prefix.Addr())}
	} else {
		if prefix.Bits() < 128 && !until.IsZero() && until.After(time.Now()) {
			return fmt.Errorf("opening the walled garden for %s: of IPv6 only single addresses end", prefix)
		}
		table, key = d.objs.Garden6, gatewayGarden6Prefix{Bits: uint32(prefix.Bits()), Addr: prefix.Addr().As16()}
	}
	if !until.IsZero() && !until.After(time.Now()) {
		if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("closing the walled garden for %s: %w", prefix, err)
		}
		return nil
	}
	var ends uint64
	if !until.IsZero() {
		ends = monotonic(until)
	}
	if err := table.Put(key, ends); err != nil {
		return fmt.Errorf("opening the walled garden for %s: %w", prefix, err)
	}
	return nil
}

// portShut marks a port that is shut, in the value of the map: see maps.h.
const portShut = 1 << 63

// OpenPort opens a port of the walled garden, or shuts it, until a time (datapath.Running).
func (d *Datapath) OpenPort(port datapath.GardenPort, until time.Time) error {
	prefix := port.Prefix.Masked()
	var table *ebpf.Map
	var key any
	if prefix.Addr().Is4() {
		table, key = d.objs.GardenPorts, gatewayGardenPort{Bits: 32 + uint32(prefix.Bits()), Port: networkPort(port.Port),
			Protocol: port.Protocol, Addr: networkOrder(prefix.Addr())}
	} else {
		table, key = d.objs.Garden6Ports, gatewayGarden6Port{Bits: 32 + uint32(prefix.Bits()), Port: networkPort(port.Port),
			Protocol: port.Protocol, Addr: prefix.Addr().As16()}
	}
	d.gardenPorts.Lock()
	defer d.gardenPorts.Unlock()
	var before uint64
	// The look-up finds the longest prefix that contains it: within what is shut nothing is opened.
	if err := table.Lookup(key, &before); err == nil && before&portShut != 0 && !port.Shut {
		if ends := before &^ portShut; ends == 0 || monotonic(time.Now()) < ends {
			return nil
		}
	}
	if !until.IsZero() && !until.After(time.Now()) {
		if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("closing port %d of %s in the walled garden: %w", port.Port, prefix, err)
		}
		return nil
	}
	var ends uint64
	if !until.IsZero() {
		ends = monotonic(until)
	}
	if port.Shut {
		ends |= portShut
	}
	if err := table.Put(key, ends); err != nil {
		return fmt.Errorf("opening port %d of %s in the walled garden: %w", port.Port, prefix, err)
	}
	return nil
}

// Packets counts packets by outcome, with the names in reasonNames.
func (d *Datapath) Packets() (map[string]uint64, error) {
	out := map[string]uint64{}
	for reason, name := range reasonNames {
		var perCPU []uint64
		if err := d.objs.Stats.Lookup(uint32(reason), &perCPU); err != nil {
			return nil, fmt.Errorf("reading the count of %s packets: %w", name, err)
		}
		for _, n := range perCPU {
			out[name] += n
		}
	}
	return out, nil
}

var reasonNames = map[gatewayReason]string{
	gatewayReasonREASON_FORWARDED:      "forwarded",
	gatewayReasonREASON_STACK:          "stack",
	gatewayReasonREASON_LOCAL:          "local",
	gatewayReasonREASON_GARDEN:         "garden",
	gatewayReasonREASON_PORTAL:         "portal",
	gatewayReasonREASON_REJECTED:       "rejected",
	gatewayReasonREASON_BLOCKED:        "blocked",
	gatewayReasonREASON_NOT_LEASED:     "not-leased",
	gatewayReasonREASON_WRONG_MAC:      "wrong-mac",
	gatewayReasonREASON_FOREIGN_SOURCE: "foreign-source",
	gatewayReasonREASON_ROGUE_DHCP:     "rogue-dhcp",
	gatewayReasonREASON_ARP_SPOOF:      "arp-spoof",
	gatewayReasonREASON_IPV6:           "ipv6",
	gatewayReasonREASON_RATE:           "rate",
	gatewayReasonREASON_QUOTA:          "quota",
	gatewayReasonREASON_MALFORMED:      "malformed",
	gatewayReasonREASON_TAGGED:         "tagged",
	gatewayReasonREASON_OVERFLOW:       "overflow",
	gatewayReasonREASON_UNASKED:        "unasked",
	gatewayReasonREASON_THROTTLED:      "throttled",
	gatewayReasonREASON_OTHER_NETWORK:  "other-network",
}

// now is CLOCK_MONOTONIC, nanoseconds, which is the programs' clock.
func now() uint64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with these arguments
	return uint64(t.Nano())
}

// monotonic converts a time to the programs' clock, never 0.
func monotonic(t time.Time) uint64 {
	return uint64(max(1, int64(now())+int64(time.Until(t))))
}

// wall converts a time of the programs' clock to wall clock time.
func wall(ns uint64) time.Time {
	return time.Now().Add(time.Duration(int64(ns) - int64(now())))
}

// Total sums the counters of all addresses.
func (d *Datapath) Total() (sum datapath.Counters, err error) {
	sum.Epoch = d.epoch
	err = d.eachCounters(func(_ uint32, c *gatewayCounters) {
		sum.UpBytes, sum.UpPackets = sum.UpBytes+c.UpBytes, sum.UpPackets+c.UpPackets
		sum.DownBytes, sum.DownPackets = sum.DownBytes+c.DownBytes, sum.DownPackets+c.DownPackets
		sum.DroppedPackets += c.Dropped
	})
	return sum, err
}

// Moved calls f for each client that has counted packets since the last call.
func (d *Datapath) Moved(f func(datapath.ID)) error {
	if d.marks == nil {
		d.marks = make([]uint64, d.slots())
	}
	return d.eachCounters(func(place uint32, c *gatewayCounters) {
		if n := c.UpPackets + c.DownPackets + c.Dropped; n != d.marks[place] {
			d.marks[place] = n
			f(d.owner(place))
		}
	})
}

// eachCounters calls f with the counters of each place.
func (d *Datapath) eachCounters(f func(place uint32, c *gatewayCounters)) error {
	values := make([]gatewayCounters, min(4096, d.slots()))
	for place := uint32(0); place < d.slots(); place += uint32(len(values)) {
		values = values[:min(uint32(len(values)), d.slots()-place)]
		if err := d.readCounters(place, values); err != nil {
			return fmt.Errorf("reading all counters: %w", err)
		}
		for i := range values {
			f(place+uint32(i), &values[i])
		}
	}
	return nil
}

// readCounters copies the counters from a place on. The table is mapped into the daemon's memory: a system call for
// each client would make status, metrics and the saving of counts cost in proportion to the clients.
func (d *Datapath) readCounters(place uint32, target []gatewayCounters) error {
	const size = int(unsafe.Sizeof(gatewayCounters{}))
	_, err := d.counters.ReadAt(
		unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(target))), size*len(target)), int64(size)*int64(place))
	return err
}

// Forwarding names the present way of forwarding: ForwardRedirect, or ForwardStack and why; "closed" while programs are
// missing; "detached" after Remove under a running daemon. Where IPv6 has another way, the reason ends with that.
func (d *Datapath) Forwarding() (word, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.retired:
		return "detached", "gatewayd detach was run: nothing is put back until gatewayd is started again"
	case d.guardClosed:
		return "closed", "programs are missing"
	}
	word, reason = d.way(d.stackReason, d.uncachedWhy)
	if !d.has6() {
		return word, reason
	}
	if word6, reason6 := d.way(d.stackReason6, d.uncachedWhy6); word6 != word || reason6 != reason {
		reason = strings.TrimPrefix(reason+"; IPv6: "+strings.TrimSuffix(word6+", "+reason6, ", "), "; ")
	}
	return word, reason
}

// way names the way of a family's packets.
func (d *Datapath) way(stackReason, uncachedWhy string) (word, reason string) {
	switch {
	case stackReason == "":
		return string(ForwardRedirect), ""
	case uncachedWhy == "":
		return "flow cache", stackReason
	case d.cfg.FlowCache != FlowCacheNever && uncachedWhy != stackReason:
		return string(ForwardStack), stackReason + "; no flows are cached: " + uncachedWhy
	}
	return string(ForwardStack), stackReason
}

// Clients lists the clients that have an entry.
func (d *Datapath) Clients() (all []datapath.ID, err error) {
	err = d.eachClientAt(func(place uint32, c gatewayClient) {
		if id := d.owner(slotOf(place, c)); c.SlotOffset == 0 || !slices.Contains(all, id) {
			all = append(all, id)
		}
	})
	if err == nil {
		err = d.eachOnly6(func(slot uint32, _ gatewayClient) { all = append(all, d.owner(slot)) })
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// openNeighbours makes the kernel's neighbour entries those of the clients, and notes their further addresses.
func (d *Datapath) openNeighbours() error {
	clients := map[netip.Addr]datapath.MAC{}
	err := d.eachClientAt(func(place uint32, c gatewayClient) {
		clients[d.addr(place)] = c.Mac
		d.furtherPlaces.add(slotOf(place, c), place)
	})
	if err == nil {
		err = d.adoptAddrs6(func(addr netip.Addr, c gatewayClient) { clients[addr] = c.Mac })
	}
	if err == nil {
		d.neighbours, err = neighbour.Open(d.lan.Index, clients, d.cfg.Log)
	}
	return err
}

// eachClientAt calls f for each entry and its place.
func (d *Datapath) eachClientAt(f func(uint32, gatewayClient)) error {
	const batch = 4096
	keys, values := make([]uint32, batch), make([]gatewayClient, batch)
	for cursor := new(ebpf.MapBatchCursor); ; {
		n, err := d.objs.Clients.BatchLookup(cursor, keys, values, nil)
		for i, c := range values[:n] {
			if c.State != uint8(gatewayStateSTATE_NONE) {
				f(keys[i], c)
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing the data path's clients: %w", err)
		}
	}
}
