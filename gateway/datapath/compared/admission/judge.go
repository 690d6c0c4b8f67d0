package admission

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Verdict is the decision on a packet.
type Verdict uint8

const (
	Drop    Verdict = iota // silently
	Forward                // forward and count
	Local                  // between a client and the gateway itself
	Portal                 // HTTP of an unauthenticated client to any address: to the portal
	// of an unauthenticated client, to be answered: TCP with a reset, the rest with ICMP "administratively prohibited"
	Reject
	Unknown // from an address that is not leased; not counted: call Table.ReportNewcomer, then judge again or drop
)

// Judge decides about the packets of one thread: it forwards, drops, or redirects each. Its methods are for one
// goroutine at a time; Table.Judge creates one for each.
type Judge struct {
	table  *Table
	_      [64]byte // keeps counters of other judges on other cache lines
	counts [reasonCount]atomic.Uint64
	_      [64]byte
}

// Count counts packets about which the data path decided without the judge.
func (j *Judge) Count(r Reason, packets int) { j.counts[r].Add(uint64(packets)) }

// countVerdict counts a packet and returns its verdict.
func (j *Judge) countVerdict(h *header, r Reason, v Verdict) Verdict {
	j.counts[r].Add(h.packets)
	return v
}

// JudgeUp judges a packet from the LAN, sent by mac to the gateway's Ethernet address or to many. now is a time of Now.
// The verdict is Forward only for admitted clients and for the walled garden. For a packet to another client it is
// Forward as well, and JudgeAcross makes the final decision. Unknown is possible only if the table has a Newcomer.
func (j *Judge) JudgeUp(mac datapath.MAC, p Packet, now int64) Verdict {
	var h header
	if !p.parse(&h) {
		j.counts[Malformed].Add(1)
		return Drop
	}
	t := j.table
	if h.protocol == protocolUDP && h.session == 0 {
		if h.srcPort == portDHCPServer && h.dstPort == portDHCPClient {
			return j.countVerdict(&h, RogueDHCP, Drop)
		}
		if t.isRequest(&h) {
			return j.dhcp(mac, &h, now)
		}
		if h.source == 0 {
			return j.countVerdict(&h, NotLeased, Drop)
		}
	}
	place, routed, ok := t.owner(h.source)
	if !ok || routed && h.session == 0 {
		return j.countVerdict(&h, ForeignSource, Drop)
	}
	e := &t.entries[place]
	word, b := e.state()
	switch {
	case word&ownerKnown == 0 && h.session != 0:
		return j.countVerdict(&h, NotLeased, Drop)
	case word&ownerKnown == 0:
		return j.unleased(mac, &h, now)
	case word&macBits != macOf(mac) || b.pppoeSession() != h.session:
		return j.countVerdict(&h, WrongMAC, Drop)
	case h.session != 0 && (word&admitted == 0 || b.expired(now)):
		return j.countVerdict(&h, Blocked, Drop)
	case word&admitted == 0 || b.expired(now):
		return j.preauth(mac, &h, p.Bytes, now)
	case h.dest == t.gateway || isMulticast(h.dest) || h.toMany:
		return j.countVerdict(&h, ForGateway, Local)
	case j.admit(e, b, &h, true, now) == Drop:
		return Drop
	}
	return j.countVerdict(&h, Forwarded, Forward)
}

// Intercepts reports whether JudgeUp would keep a TCP segment from its destination: an unauthenticated client's goes
// to the portal or is rejected, and a newcomer becomes a client first. It counts nothing.
func (j *Judge) Intercepts(mac datapath.MAC, p Packet, now int64) bool {
	var h header
	t := j.table
	if !p.parse(&h) || h.source-t.base >= uint32(len(t.entries)) {
		return false
	}
	word, b := t.entries[h.source-t.base].state()
	switch {
	case word&ownerKnown == 0:
		return t.newcomers != nil && h.source != t.gateway
	case word&macBits != macOf(mac) || word&admitted != 0 && !b.expired(now) || h.dest == t.gateway:
		return false
	}
	return h.protocol == protocolTCP && !isMulticast(h.dest) && !t.inGarden(&h, now)
}

// unleased judges a packet from an address of the LAN that is not leased.
func (j *Judge) unleased(mac datapath.MAC, h *header, now int64) Verdict {
	if j.table.newcomers != nil && h.source != j.table.gateway {
		return Unknown
	}
	return j.countVerdict(h, NotLeased, Drop)
}

// dhcp judges a DHCP client's message, whatever its source address: it may be of another network or of another client,
// because the device has moved, or its lease has gone to another device, and the server must tell it.
func (j *Judge) dhcp(mac datapath.MAC, h *header, now int64) Verdict {
	leased := false // the source is the sender's own address
	if place := h.source - j.table.base; place < uint32(len(j.table.entries)) {
		word, _ := j.table.entries[place].state()
		leased = word&ownerKnown != 0 && word&macBits == macOf(mac)
	}
	if !j.table.strangers.dhcp.Spend(macOf(mac), leased, now) {
		return j.countVerdict(h, Throttled, Drop)
	}
	return j.countVerdict(h, ForGateway, Local)
}

// preauth judges a packet of a known client that is not admitted.
func (j *Judge) preauth(mac datapath.MAC, h *header, b []byte, now int64) Verdict {
	t := j.table
	from := ownedSlot{h.source - t.base, macOf(mac)}
	switch {
	case h.dest == t.gateway:
		if t.serves(h) {
			return j.toService(from, h, b, now)
		}
	case h.protocol == protocolUDP && h.dstPort == portDHCPServer:
		return j.countVerdict(h, Blocked, Drop)
	case h.toMany:
		return j.countVerdict(h, Blocked, Drop)
	case t.inGarden(h, now):
		if !t.strangers.mayFlow(from, h, b, datapath.GardenFlow, datapath.NumWorks, now) {
			return j.countVerdict(h, Throttled, Drop)
		}
		return j.countVerdict(h, Garden, Forward)
	case h.protocol == protocolTCP && h.dstPort == portHTTP && len(t.cfg.PortalPorts) > 0 && !isMulticast(h.dest):
		if !t.strangers.mayFlow(from, h, b, datapath.Capture, datapath.Segment, now) {
			return j.countVerdict(h, Throttled, Drop)
		}
		return j.countVerdict(h, ToPortal, Portal)
	}
	switch {
	case !h.answerable(b):
		return j.countVerdict(h, Blocked, Drop)
	case !t.strangers.affords(from, datapath.Refusal, now):
		return j.countVerdict(h, Throttled, Drop)
	}
	return j.countVerdict(h, Rejected, Reject)
}

// toService judges a packet of an unauthenticated client to a service of the gateway.
func (j *Judge) toService(from ownedSlot, h *header, b []byte, now int64) Verdict {
	s, ok := j.table.strangers, false
	if h.protocol == protocolTCP {
		ok = s.mayFlow(from, h, b, datapath.Connection, datapath.Segment, now)
	} else {
		ok = s.affords(from, datapath.Datagram, now)
	}
	if !ok {
		return j.countVerdict(h, Throttled, Drop)
	}
	return j.countVerdict(h, ForGateway, Local)
}

// serves reports whether the gateway serves these ports before login.
func (t *Table) serves(h *header) bool {
	if h.protocol == protocolICMP || h.dstPort == portDNS {
		return true
	}
	return h.protocol == protocolTCP && slices.Contains(t.cfg.PortalPorts, h.dstPort)
}

// JudgeDown judges a packet to the LAN, and returns the MAC address of its client at the time of the decision. Packets
// of the gateway itself are Local and not counted.
func (j *Judge) JudgeDown(p Packet, now int64) (Verdict, datapath.MAC) {
	var h header
	if !p.parse(&h) {
		j.counts[Malformed].Add(1)
		return Drop, datapath.MAC{}
	}
	t := j.table
	place, _, ok := t.owner(h.dest)
	if _, _, inside := t.owner(h.source); !ok || inside && h.source != t.gateway {
		return j.countVerdict(&h, ForeignSource, Drop), datapath.MAC{}
	}
	return j.toClient(&t.entries[place], &h, now)
}

// JudgeAcross judges a packet from one client to another that JudgeUp forwarded, as JudgeDown judges one from
// elsewhere.
func (j *Judge) JudgeAcross(p Packet, now int64) (Verdict, datapath.MAC) {
	var h header
	if !p.parse(&h) {
		j.counts[Malformed].Add(1)
		return Drop, datapath.MAC{}
	}
	place, _, ok := j.table.owner(h.dest)
	if !ok {
		j.counts[Malformed].Add(1)
		return Drop, datapath.MAC{}
	}
	return j.toClient(&j.table.entries[place], &h, now)
}

// toClient judges a packet to the client of an entry.
func (j *Judge) toClient(e *entry, h *header, now int64) (Verdict, datapath.MAC) {
	word, b := e.state()
	mac := macIn(word)
	switch {
	case word&ownerKnown == 0:
		return j.countVerdict(h, NotLeased, Drop), mac
	case h.source == j.table.gateway:
		return j.countVerdict(h, ForGateway, Local), mac
	case word&admitted == 0 || b.expired(now):
		if j.table.reaches(h.source, h.protocol, h.srcPort, now) {
			return j.countVerdict(h, Garden, Forward), mac
		}
		return j.countVerdict(h, Blocked, Drop), mac
	}
	if j.admit(e, b, h, false, now) == Drop {
		return Drop, mac
	}
	return j.countVerdict(h, Forwarded, Forward), mac
}

// pppoeSession returns a client's PPPoE session; 0: it has none.
func (b *bounds) pppoeSession() uint16 {
	if b == nil {
		return 0
	}
	return b.session
}

// IsClientAddr reports whether an address, as a number, is one of the LAN or in a network behind a client.
func (j *Judge) IsClientAddr(addr uint32) bool {
	_, _, ok := j.table.owner(addr)
	return ok
}

// PPPoE returns the PPPoE session and its MTU of the client that has an address, as a number; 0: it has none.
func (j *Judge) PPPoE(addr uint32) (session, mtu uint16) {
	place, _, ok := j.table.owner(addr)
	if !ok {
		return 0, 0
	}
	if _, b := j.table.entries[place].state(); b != nil {
		return b.session, b.mtu
	}
	return 0, 0
}

// expired reports whether the client's admission has expired.
func (b *bounds) expired(now int64) bool { return b != nil && b.until != 0 && now >= b.until }

// admit applies an admitted client's limits to a packet and counts it: Forward, or Drop with the reason counted.
func (j *Judge) admit(e *entry, b *bounds, h *header, up bool, now int64) Verdict {
	if e.seen.Load() < now {
		e.seen.Store(now)
	}
	if b != nil {
		if r, ok := b.allow(e, h.bytes, up, now); !ok {
			e.dropped.Add(h.packets)
			return j.countVerdict(h, r, Drop)
		}
	}
	if up {
		e.upBytes.Add(h.bytes)
		e.upPackets.Add(h.packets)
	} else {
		e.downBytes.Add(h.bytes)
		e.downPackets.Add(h.packets)
	}
	return Forward
}

// allow reports whether quota and rate permit a packet, or the reason if not.
func (b *bounds) allow(e *entry, bytes uint64, up bool, now int64) (Reason, bool) {
	sent, received := e.upBytes.Load(), e.downBytes.Load()
	used, quota, ps, burst, clock := sent, b.upBytes, b.upPsPerByte, b.upBurst, &b.meters.up
	if !up {
		used, quota, ps, burst, clock = received, b.downBytes, b.downPsPerByte, b.downBurst, &b.meters.down
	}
	if quota != 0 && used >= quota || b.total != 0 && sent+received >= b.total {
		return BeyondQuota, false
	}
	if ps != 0 && !clock.take(ps, burst, bytes, now) {
		return BeyondRate, false
	}
	return Forwarded, true
}

// ARP judges an ARP packet from the LAN, from its hardware type on, in a frame of from: Local when the sender may use
// the addresses in it. Clients with addresses that are not leased pass if the table learns clients.
func (j *Judge) ARP(from datapath.MAC, b []byte, now int64) Verdict {
	const ethernetIPv4 = 0x0001_0800_06_04
	if len(b) < 28 || binary.BigEndian.Uint64(b)>>16 != ethernetIPv4 {
		j.counts[Malformed].Add(1)
		return Drop
	}
	t := j.table
	mac, sender := datapath.MAC(b[8:14]), binary.BigEndian.Uint32(b[14:])
	place := sender - t.base
	switch {
	case mac != from:
		j.counts[ARPSpoof].Add(1)
		return Drop
	case sender == 0: // a probe for a free address
		return j.arpVerdict(t.strangers.probes.Spend(macOf(mac), false, now))
	case place >= uint32(len(t.entries)) || sender == t.gateway:
		j.counts[ARPSpoof].Add(1)
		return Drop
	}
	word, limits := t.entries[place].state()
	switch {
	case word&ownerKnown == 0 && t.newcomers != nil:
		t.ReportNewcomer(address(sender), mac, nil)
		return Local
	case word&ownerKnown == 0 || word&macBits != macOf(mac) || limits.pppoeSession() != 0:
		j.counts[ARPSpoof].Add(1)
		return Drop
	}
	const request = 1
	return j.arpVerdict(
		binary.BigEndian.Uint16(b[6:]) != request ||
			t.strangers.affords(ownedSlot{place, macOf(mac)}, datapath.Question, now))
}

// arpVerdict is the verdict on an ARP packet that is within its sender's budget, or not.
func (j *Judge) arpVerdict(ok bool) Verdict {
	if !ok {
		j.counts[Throttled].Add(1)
		return Drop
	}
	return Local
}
