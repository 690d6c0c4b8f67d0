package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// IPv6 addresses are keys of a hash table, whose entries name their clients' slots (slots.go):
//
//	address ─▶ clients6: MAC, state, line, slot ─▶ counters, limits, meters, queues [slot]
//
// The table takes 16 bytes for each address that there is room for (datapath.Network.Addrs6), and 96 bytes for each
// that is there.

// knownBits is how many bits of a hash choose a connection's place among those that each CPU knows (known6.h), of 256
// bytes each: four places for each address of a LAN that is large, unless it shares the machine with others, and 65,536
// at most. There are 4,096 at least; beyond, all CPUs together have 64 MB.
func (d *Datapath) knownBits() uint32 {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = 1 << 6
	}
	most := min(1<<18/uint32(cpus), 1<<16)
	return uint32(bits.Len32(max(min(4*d.net.Size()/d.sharers(), most), 1<<12)) - 1)
}

// addrs6 has the IPv6 addresses of the clients that have any, by slot.
type addrs6 map[uint32][]netip.Addr

// key6 returns an address as a key of the programs' tables.
func key6(addr netip.Addr) gatewayAddr6 {
	b := addr.As16()
	return gatewayAddr6{High: binary.NativeEndian.Uint64(b[:8]), Low: binary.NativeEndian.Uint64(b[8:])}
}

// addr6Of returns the address of a key.
func addr6Of(k gatewayAddr6) netip.Addr {
	b := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, k.High), k.Low)
	return netip.AddrFrom16([16]byte(b))
}

// splitAddrs returns a client's addresses by their families. It fails for addresses that no client can have.
func (d *Datapath) splitAddrs(addrs []netip.Addr) (v4, v6 []netip.Addr, err error) {
	for _, addr := range addrs {
		switch {
		case addr.Is4():
			v4 = append(v4, addr)
		case !d.has6():
			return nil, nil, fmt.Errorf("the address %s: %w: IPv6 is off", addr, datapath.ErrNotSupported)
		case !addr.Is6() || addr.Is4In6() || addr.Zone() != "" || addr.IsUnspecified() || addr.IsLoopback() ||
			addr.IsMulticast():
			return nil, nil, fmt.Errorf("%w: %s is no host's address", datapath.ErrForeign, addr)
		default:
			v6 = append(v6, addr)
		}
	}
	return v4, v6, nil
}

// holdings6 is what a client has of IPv6.
type holdings6 struct {
	addrs    []netip.Addr
	networks []netip.Prefix // behind it
}

// putEntries6 makes an entry that of a client's IPv6 addresses and networks, and takes those that it had besides away.
// It reports whether that blocks an admitted client.
func (d *Datapath) putEntries6(slot uint32, all holdings6, entry gatewayClient) (blocked bool, err error) {
	d.addrs6Lock.Lock()
	defer d.addrs6Lock.Unlock()
	if err := d.checkNetworks6(slot, all.networks); err != nil {
		return false, err
	}
	changed := false
	defer func() {
		if changed {
			err = errors.Join(err, d.set6(func(s *gatewaySettings6) { s.Changes++ }))
		}
	}()
	entry.SlotOffset = slot
	if changed, err = d.putNetworks6(slot, all.networks, entry); err != nil {
		return changed, err
	}
	blocked = changed && !admits(entry)
	for _, addr := range all.addrs {
		var before gatewayClient
		if err := d.objs.Clients6.Lookup(key6(addr), &before); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return blocked, err
		}
		if err := d.objs.Clients6.Put(key6(addr), entry); err != nil {
			return blocked, fmt.Errorf("entering %s: %w", addr, err)
		}
		blocked = blocked || admits(before) && !admits(entry)
		changed = changed || admits(before) && before != entry
		if before.State != uint8(gatewayStateSTATE_NONE) && before.SlotOffset != slot {
			d.addrs6.drop(before.SlotOffset, addr)
		}
		d.addrs6.add(slot, addr)
	}
	for _, addr := range slices.Clone(d.addrs6[slot]) {
		if slices.Contains(all.addrs, addr) {
			continue
		}
		if err := d.objs.Clients6.Delete(key6(addr)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return blocked, fmt.Errorf("removing %s: %w", addr, err)
		}
		d.addrs6.drop(slot, addr)
		d.neighbours.Remove(addr)
		blocked, changed = true, true
	}
	return blocked, nil
}

func (a addrs6) add(slot uint32, addr netip.Addr) {
	if !slices.Contains(a[slot], addr) {
		a[slot] = append(a[slot], addr)
	}
}

func (a addrs6) drop(slot uint32, addr netip.Addr) {
	a[slot] = slices.DeleteFunc(a[slot], func(other netip.Addr) bool { return other == addr })
	if len(a[slot]) == 0 {
		delete(a, slot)
	}
}

// eachOnly6 calls f for each client without IPv4, with the entry of one of its addresses.
func (d *Datapath) eachOnly6(f func(slot uint32, c gatewayClient)) error {
	d.addrs6Lock.Lock()
	defer d.addrs6Lock.Unlock()
	for slot, addrs := range d.addrs6 {
		if d.isPlace(slot) {
			continue
		}
		var c gatewayClient
		if err := d.objs.Clients6.Lookup(key6(addrs[0]), &c); err != nil {
			return fmt.Errorf("reading the entry of %s: %w", addrs[0], err)
		}
		f(slot, c)
	}
	return nil
}

// adoptAddrs6 notes the IPv6 addresses that a former daemon entered, and calls f for each. Without IPv6 it removes
// them.
func (d *Datapath) adoptAddrs6(f func(netip.Addr, gatewayClient)) error {
	d.addrs6 = addrs6{}
	var key gatewayAddr6
	var c gatewayClient
	var all []gatewayAddr6
	for it := d.objs.Clients6.Iterate(); ; {
		if !it.Next(&key, &c) {
			if err := it.Err(); err != nil {
				return fmt.Errorf("listing IPv6 addresses: %w", err)
			}
			break
		}
		if d.has6() {
			d.addrs6.add(c.SlotOffset, addr6Of(key))
			f(addr6Of(key), c)
		} else {
			all = append(all, key)
		}
	}
	for _, key := range all {
		if err := d.objs.Clients6.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("removing %s: %w", addr6Of(key), err)
		}
	}
	return nil
}

// has6 reports whether clients may have IPv6 addresses. Otherwise their IPv6 packets are dropped.
func (d *Datapath) has6() bool { return d.net.Address6.IsValid() }

// begin6 gives the programs their settings of IPv6 before they are attached.
func (d *Datapath) begin6() error {
	if !d.has6() {
		return nil
	}
	for _, prefix := range d.net.Inbound6 {
		key := gatewayGarden6Prefix{Bits: uint32(prefix.Bits()), Addr: prefix.Masked().Addr().As16()}
		if err := d.objs.Inbound6.Put(key, uint8(1)); err != nil {
			return fmt.Errorf("letting %s in: %w", prefix, err)
		}
	}
	d.settings6.On, d.settings6.Gateway = 1, key6(d.net.Address6.Addr())
	d.addrs6Lock.Lock()
	defer d.addrs6Lock.Unlock()
	d.networks6.prefixes = []netip.Prefix{d.net.Address6}
	return d.setLAN6() // a former daemon's routes stay until SetPrefixes6 is called
}

// errPrefixes6 tells that a LAN has more prefixes at the same time than the programs compare.
var errPrefixes6 = fmt.Errorf("more than %d IPv6 prefixes of one network", len(gatewaySettings6{}.Prefixes))

// SetPrefixes6 tells the programs which prefixes the LAN has: packets from the WAN with their addresses as source are
// forged, and those for addresses that nobody has are dropped. A prefix longer than /64 counts as its /64. It keeps the
// machine's routes to those that are on the link.
func (d *Datapath) SetPrefixes6(prefixes, onLink []netip.Prefix) error {
	d.addrs6Lock.Lock()
	defer d.addrs6Lock.Unlock()
	if err := d.networks6.onLink.Set(onLink); err != nil {
		return err
	}
	d.networks6.prefixes = slices.Clone(prefixes)
	return d.setLAN6()
}

// setLAN6 tells the programs the LAN's prefixes and pools. addrs6Lock is held.
func (d *Datapath) setLAN6() error {
	all := slices.Clone(d.networks6.prefixes)
	for _, pool := range d.networks6.pools { // of the LAN, or apart from it
		if !slices.Contains(d.networks6.prefixes, pool) {
			all = append(all, pool)
		}
	}
	if len(all) > len(d.settings6.Prefixes) {
		return errPrefixes6
	}
	if err := d.enterParts6(); err != nil {
		return err
	}
	return d.set6(func(s *gatewaySettings6) {
		s.Changes++
		clear(s.Prefixes[:])
		for i, p := range all {
			bits := min(p.Bits(), 64)
			mask := ^uint64(0) << (64 - bits)
			masked := netip.PrefixFrom(p.Addr(), bits).Masked().Addr()
			s.Prefixes[i].Bits = key6(masked).High
			s.Prefixes[i].Mask = binary.NativeEndian.Uint64(binary.BigEndian.AppendUint64(nil, mask))
		}
	})
}

// set6 changes the programs' settings of IPv6.
func (d *Datapath) set6(edit func(*gatewaySettings6)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	edit(&d.settings6)
	if err := d.objs.GatewaySettings6.Put(uint32(0), &d.settings6); err != nil && !d.isDetached() {
		return fmt.Errorf("changing the data path's settings of IPv6: %w", err)
	}
	return nil
}

// Heard6 returns a source of what clients say about their IPv6 addresses, one Ethernet frame a Read, until Close:
// neighbour discovery and DHCPv6 whole, and of packets from addresses that nobody has the Ethernet and IPv6 headers.
// Only one reader may be open at a time.
func (d *Datapath) Heard6() (io.ReadCloser, error) {
	r, err := ringbuf.NewReader(d.objs.Heard6)
	if err != nil {
		return nil, fmt.Errorf("listening to neighbour discovery: %w", err)
	}
	return &requests{ring: r}, nil
}

// judgeRouting6 reads what decides where the stack sends IPv6 packets.
func (d *Datapath) judgeRouting6(r *reasons) {
	r.routing6 = ""
	if !d.has6() {
		return
	}
	var err error
	if r.routing6, err = stack.ByDestination6(d.lan, d.wan); err != nil {
		r.routing6 = err.Error()
	}
}

// judgeRules6 reads netfilter's rules for IPv6.
func (d *Datapath) judgeRules6(r *reasons) {
	r.rules6, r.ruled6 = "", false
	if !d.has6() {
		return
	}
	names, err := stack.Rules6(guarding, d.lan.Name, d.wan.Name)
	switch {
	case d.cfg.Flows:
		r.rules6 = "clients' connections are logged (flowlog.enabled)"
	case err != nil:
		r.rules6 = "netfilter's rules cannot be read: " + err.Error()
	case len(names) > 0:
		r.rules6 = "netfilter has rules in " + names[0]
	}
	r.ruled6 = err == nil && len(names) > 0 && !d.cfg.Flows
	r.variance6 = d.readVariance(unix.NFPROTO_IPV6, r.ruled6)
}

// forward6 has IPv6 packets redirected, or left to the stack for a reason.
func (d *Datapath) forward6(reason string) {
	if !d.has6() {
		return
	}
	err := d.set6(func(s *gatewaySettings6) {
		if d.stackReason6 != reason {
			d.cfg.Log.Info("forwarding IPv6", "redirect", reason == "", "why", reason)
		}
		d.stackReason6, s.RedirectUntil = reason, stamp(reason)
	})
	if err != nil {
		d.cfg.Log.Error("choosing who forwards IPv6", "redirect", reason == "", "why", reason, "err", err)
	}
}

// renew6 renews the stamp without which the programs stop redirecting IPv6 packets.
func (d *Datapath) renew6() error {
	if !d.has6() {
		return nil
	}
	return d.set6(func(s *gatewaySettings6) { s.RedirectUntil = stamp(d.stackReason6) })
}
