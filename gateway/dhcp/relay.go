package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// MaxAgentID is the longest circuit or remote ID that is kept, bytes: what a vendor's attribute of RADIUS has room for.
const MaxAgentID = 247

// Suboptions of relay agent information (RFC 3046, 2.0), and the bytes before the value of one.
const (
	agentCircuit, agentRemote = 1, 2
	agentHeader               = 2
)

// Relay is a relay that may send clients' messages (RFC 2131, 4.1).
type Relay struct {
	Addr   netip.Addr   // its address on its clients' link, which it sends as giaddr
	Subnet netip.Prefix // of its clients' link: the LAN's, or a part of it that is behind a router
	Router netip.Addr   // that router's address on the LAN; the zero Addr: the clients are on the LAN itself
}

// Attachment is where a client is attached, as a relay or a switch says.
type Attachment struct {
	Circuit, Remote string // suboptions 1 and 2 of option 82: any bytes, MaxAgentID at most; empty: not said
	// Via is the router that the client is behind, by whose MAC address its packets come; zero: it is on the LAN itself.
	Via MAC
}

// errAgent means that relay agent information cannot be read.
var errAgent = errors.New("its relay agent information (option 82) cannot be read")

// agentIDs returns the circuit and remote ID in relay agent information. Where it is cut off, or has one of them twice
// or too long, it fails with errAgent: nobody knows then who said what.
func agentIDs(information []byte) (circuit, remote string, err error) {
	var seen [256]bool
	for rest := information; len(rest) > 0; {
		if len(rest) < agentHeader || agentHeader+int(rest[1]) > len(rest) || seen[rest[0]] {
			return "", "", errAgent
		}
		kind, value := rest[0], rest[agentHeader:agentHeader+int(rest[1])]
		seen[kind], rest = true, rest[agentHeader+len(value):]
		switch {
		case kind != agentCircuit && kind != agentRemote:
		case len(value) > MaxAgentID:
			return "", "", errAgent
		case kind == agentCircuit:
			circuit = string(value)
		default:
			remote = string(value)
		}
	}
	return circuit, remote, nil
}

// agentIDs returns the circuit and remote ID that a message has where relays and switches add them: in the options
// field, once. What a client has put into file or sname passes some of them, and beside an option of theirs it is not
// known who said what, which is errAgent too.
func (m received) agentIDs() (circuit, remote string, err error) {
	added := slices.Collect(received{m.bytes, m.areas[:1]}.optionsOf(dhcpv4.OptionRelayAgentInformation))
	if len(added) > 1 {
		return "", "", errAgent
	}
	return agentIDs(slices.Concat(added...))
}

// segment is a link with clients: the LAN, or one behind a router that relays.
type segment struct {
	cfg   Config // with the segment's own Subnet, Pools, Static and Routers
	fixed map[byte][]byte
	table *table
	// routed means that clients' packets come with the MAC address of a router.
	routed bool
}

// segments returns the links of a configuration by their relays' addresses, and first of all that of the LAN. Addresses
// of a relay's subnet are for its clients alone.
func segments(cfg Config) (all []*segment, byRelay map[netip.Addr]*segment) {
	lan := cfg
	lan.Static = map[MAC]netip.Addr{}
	var apart []Config
	byRelay = map[netip.Addr]*segment{}
	for _, r := range cfg.Relays {
		i := slices.IndexFunc(apart, func(c Config) bool { return c.Subnet == r.Subnet })
		switch {
		case r.Subnet == cfg.Subnet:
		case i >= 0:
			apart[i].Routers = append(apart[i].Routers, r.Addr)
		default:
			c := cfg
			c.Subnet, c.Routers, c.Static = r.Subnet, []netip.Addr{r.Addr}, map[MAC]netip.Addr{}
			apart = append(apart, c)
		}
	}
	for i := range apart {
		apart[i].Pools = nil
		inside := Range{apart[i].Subnet.Addr().Next(), broadcastOf(apart[i].Subnet).Prev()}
		for _, pool := range lan.Pools {
			apart[i].Pools = append(apart[i].Pools, pool.within(inside)...)
		}
		lan.Pools = without(lan.Pools, Range{apart[i].Subnet.Addr(), broadcastOf(apart[i].Subnet)})
	}
	for mac, addr := range cfg.Static {
		i := slices.IndexFunc(apart, func(c Config) bool { return c.Subnet.Contains(addr) })
		if i >= 0 {
			apart[i].Static[mac] = addr
		} else {
			lan.Static[mac] = addr
		}
	}
	for i, c := range append([]Config{lan}, apart...) {
		for _, r := range cfg.Relays {
			c.Pools = without(c.Pools, Range{r.Addr, r.Addr})
			if r.Router.IsValid() {
				c.Pools = without(c.Pools, Range{r.Router, r.Router})
			}
		}
		all = append(all, &segment{cfg: c, fixed: fixedOptions(c), table: newTable(c), routed: i > 0})
	}
	for _, r := range cfg.Relays {
		byRelay[r.Addr] = all[slices.IndexFunc(all, func(s *segment) bool { return s.cfg.Subnet == r.Subnet })]
	}
	return all, byRelay
}

// restore is the table's, for a record that can be of the link.
func (l *segment) restore(r record, now time.Time) bool {
	return (r.at.Via != MAC{}) == l.routed && l.table.restore(r, now)
}

// within returns what two ranges have in common.
func (r Range) within(other Range) []Range {
	first, last := r.First, r.Last
	if other.First.Compare(first) > 0 {
		first = other.First
	}
	if other.Last.Compare(last) < 0 {
		last = other.Last
	}
	if first.Compare(last) > 0 {
		return nil
	}
	return []Range{{first, last}}
}

// without returns ranges without the addresses of another one.
func without(all []Range, taken Range) (left []Range) {
	for _, r := range all {
		if len(r.within(taken)) == 0 {
			left = append(left, r)
			continue
		}
		if r.First.Compare(taken.First) < 0 {
			left = append(left, Range{r.First, taken.First.Prev()})
		}
		if taken.Last.Compare(r.Last) < 0 {
			left = append(left, Range{taken.Last.Next(), r.Last})
		}
	}
	return left
}

// checkRelays checks the relays of a configuration whose Subnet is masked.
func (c Config) checkRelays() error {
	for i, r := range c.Relays {
		switch {
		case !c.Subnet.Contains(r.Subnet.Addr()) || r.Subnet.Bits() < c.Subnet.Bits() || r.Subnet.Bits() > 30 ||
			r.Subnet != r.Subnet.Masked():
			return fmt.Errorf("dhcp: the network %s of relay %s must be %s or a part of it, /30 or larger", r.Subnet, r.Addr,
				c.Subnet)
		case !(Config{Subnet: r.Subnet}).host(r.Addr) || r.Addr == c.Server:
			return fmt.Errorf("dhcp: relay %s has no host address of its network %s", r.Addr, r.Subnet)
		case r.Subnet != c.Subnet && r.Subnet.Contains(c.Server):
			return fmt.Errorf("dhcp: the network %s of relay %s has the server's own address", r.Subnet, r.Addr)
		}
		for _, other := range c.Relays[:i] {
			if other.Addr == r.Addr || other.Subnet != r.Subnet && other.Subnet != c.Subnet && r.Subnet != c.Subnet &&
				other.Subnet.Overlaps(r.Subnet) {
				return fmt.Errorf("dhcp: relay %s with %s contradicts relay %s with %s", r.Addr, r.Subnet, other.Addr,
					other.Subnet)
			}
		}
	}
	return nil
}

// segmentOf returns the link that an address belongs to.
func (s *Server) segmentOf(addr netip.Addr) *segment {
	for _, link := range s.segments[1:] {
		if link.cfg.Subnet.Contains(addr) {
			return link
		}
	}
	return s.segments[0]
}

// lan is the gateway's own link.
func (s *Server) lan() *segment { return s.segments[0] }

// locate finds out who the client of a request is, on which link, and where it is attached. The data path admits frames
// by their sender, and a client that could use any hardware address would count as many clients. Errors wrap errRelayed
// or errSpoofed. s.mu is held.
func (s *Server) locate(rq *request) error {
	mac := MAC(rq.hardware.addr[:])
	rq.client = client{mac: mac, id: rq.id}
	switch {
	case mac == (MAC{}) || mac[0]&1 != 0:
		return fmt.Errorf("%w: %s", errSpoofed, net.HardwareAddr(mac[:]))
	case rq.relay.IsValid():
		if rq.segment = s.relays[rq.relay]; rq.segment == nil {
			return fmt.Errorf("%w at %s: dhcp.relays does not have it", errRelayed, rq.relay)
		}
		if mac == rq.sender || s.isClient(rq.sender) { // which claims to be a relay
			return fmt.Errorf("%w: %s", errSpoofed, net.HardwareAddr(mac[:]))
		}
		if rq.informed = true; s.cfg.Repeaters[mac] { // no identifier makes it one of those behind
			rq.client = behindRepeater(mac, mac)
		}
	case s.cfg.Repeaters[rq.sender]:
		rq.client, rq.behind = behindRepeater(rq.sender, mac), true
		rq.segment, rq.informed = s.lan(), s.cfg.Information
	case mac == rq.sender:
		rq.segment, rq.informed = s.lan(), s.cfg.Information
	default:
		if rq.segment = s.behindRouter(mac, rq.ciaddr, rq.sender); rq.segment == nil || rq.source.Addr() != rq.ciaddr {
			return fmt.Errorf("%w: %s", errSpoofed, net.HardwareAddr(mac[:]))
		}
		return nil // it renews, or releases, without its relay
	}
	if rq.segment.routed {
		rq.at.Via = rq.sender
	}
	if rq.informed {
		rq.at.Circuit, rq.at.Remote = rq.said.Circuit, rq.said.Remote
		if rq.unread != nil {
			s.stats.badAgent.Add(1)
			s.logRefusal(rq.sender, rq.unread)
		}
	}
	return nil
}

// behindRouter returns the link of a client that has leased an address behind a router, by the MAC address of which its
// message comes; nil: there is no such client. s.mu is held.
func (s *Server) behindRouter(mac MAC, addr netip.Addr, router MAC) *segment {
	link := s.segmentOf(addr)
	if b := link.table.byAddr[addr]; link.routed && b != nil && b.state == leased && b.client.mac == mac &&
		b.at.Via == router {
		return link
	}
	return nil
}

// serves reports whether a device has an address of a pool. A router that relays may have a static one.
func (t *table) serves(mac MAC) bool {
	return slices.ContainsFunc(t.held[mac], func(b *binding) bool { return !t.static(b) })
}

// isClient reports whether a device on the LAN is no relay, but has an address of a pool, or is a repeater. s.mu is
// held.
func (s *Server) isClient(mac MAC) bool { return s.cfg.Repeaters[mac] || s.lan().table.serves(mac) }

// payer is the device whose budget a frame uses up: its sender, or the client of a message that a relay has sent on, or
// that comes by a router. A client that claims to be a relay uses up its own. s.mu is held.
func (s *Server) payer(frame []byte) MAC {
	sender := MAC(frame[6:12])
	if len(s.relays) == 0 || s.isClient(sender) {
		return sender
	}
	d, err := parseFrame(frame)
	if err != nil || len(d.payload) < atOptions {
		return sender
	}
	m := received{bytes: d.payload}
	mac := MAC(d.payload[atHardware:])
	if s.relays[m.field(atGiaddr)] != nil || s.behindRouter(mac, m.field(atCiaddr), sender) != nil {
		return mac
	}
	return sender
}

// attachment is where the client of a request is attached, given where it was. A client that renews without its relay
// has not moved, unless switches say where clients are that have none.
func (rq *request) attachment(before Attachment) Attachment {
	if !rq.relay.IsValid() && (rq.segment.routed || !rq.informed && !rq.ciaddr.IsUnspecified()) {
		return before
	}
	return rq.at
}
