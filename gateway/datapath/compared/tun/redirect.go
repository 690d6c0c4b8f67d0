package tun

import (
	"encoding/binary"
	"sync"
)

// Limits of redirects: connections of a client to the portal at once, and how long one lasts without a packet, seconds
// of the judges' clock.
const (
	perClient    = 64
	redirectIdle = 120
)

// redirects are connections of unauthenticated clients that go to the portal instead of their destination: by client
// and its port, the original destination. Each client has its own few entries, so that none can take another's. All
// threads share them.
type redirects struct {
	gateway uint32
	port    uint16 // the portal's

	mu      sync.Mutex // guards what follows
	clients map[uint32]*[perClient]redirected
	swept   int64 // second of the last check for idle ones
}

// redirected is a connection that goes to the portal. seen 0 marks a free entry.
type redirected struct {
	seen     int64 // second of its last packet
	dest     uint32
	port     uint16 // the client's
	destPort uint16
}

func newRedirects(gateway uint32, ports []uint16) *redirects {
	r := &redirects{gateway: gateway, clients: map[uint32]*[perClient]redirected{}}
	if len(ports) > 0 {
		r.port = ports[0]
	}
	return r
}

// toPortal gives an unauthenticated client's TCP packet the portal's address and port. The first packet of a connection
// adds an entry, which replaces the one idle longest; false: the packet belongs to no connection.
func (r *redirects) toPortal(ip []byte, now int64) bool {
	tcp := transport(ip, tcpLen)
	if tcp == nil {
		return false
	}
	client, dest := sourceOf(ip), destOf(ip)
	port, destPort := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	second := now / 1e9
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.find(client, port)
	if tcp[13]&(flagSYN|flagACK) == flagSYN {
		if c == nil {
			c = r.newEntry(client, second)
		}
		*c = redirected{dest: dest, port: port, destPort: destPort}
	} else if c == nil || c.dest != dest || c.destPort != destPort {
		return false
	}
	c.seen = second
	readdress(ip, tcp, 16, r.gateway, 2, r.port)
	return true
}

// fromPortal gives a packet of the portal the source address that the client requested.
func (r *redirects) fromPortal(ip []byte, now int64) {
	tcp := r.ofPortal(ip, 0)
	if tcp == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.find(destOf(ip), binary.BigEndian.Uint16(tcp[2:])); c != nil {
		c.seen = now / 1e9
		readdress(ip, tcp, 12, c.dest, 0, c.destPort)
	}
}

// direct handles the first packet of a client's connection to the portal itself. It removes the entry of an earlier
// redirected connection from the same port of the client: answers would get that one's address.
func (r *redirects) direct(ip []byte) {
	tcp := r.ofPortal(ip, 2)
	if tcp == nil || tcp[13]&(flagSYN|flagACK) != flagSYN {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.find(sourceOf(ip), binary.BigEndian.Uint16(tcp)); c != nil {
		*c = redirected{}
	}
}

// sends reports whether a packet comes from the portal and may need readdressing.
func (r *redirects) sends(ip []byte) bool { return r.ofPortal(ip, 0) != nil }

// ofPortal returns the TCP header of a packet that has the portal's port at an offset in it; nil for others.
func (r *redirects) ofPortal(ip []byte, index int) []byte {
	if ip[9] != protocolTCP || r.port == 0 {
		return nil
	}
	tcp := transport(ip, tcpLen)
	if tcp == nil || binary.BigEndian.Uint16(tcp[index:]) != r.port {
		return nil
	}
	return tcp
}

// find returns a client's connection. mu is held.
func (r *redirects) find(client uint32, port uint16) *redirected {
	all := r.clients[client]
	if all == nil {
		return nil
	}
	for i := range all {
		if all[i].seen != 0 && all[i].port == port {
			return &all[i]
		}
	}
	return nil
}

// newEntry returns an entry for another of a client's connections. mu is held.
func (r *redirects) newEntry(client uint32, second int64) *redirected {
	r.sweep(second)
	all := r.clients[client]
	if all == nil {
		all = new([perClient]redirected)
		r.clients[client] = all
	}
	oldest := &all[0]
	for i := range all {
		if all[i].seen < oldest.seen {
			oldest = &all[i]
		}
	}
	return oldest
}

// sweep removes clients with only idle connections, from time to time. mu is held.
func (r *redirects) sweep(second int64) {
	if second < r.swept+redirectIdle {
		return
	}
	r.swept = second
	for client, all := range r.clients {
		live := false
		for i := range all {
			live = live || all[i].seen+redirectIdle > second
		}
		if !live {
			delete(r.clients, client)
		}
	}
}

// readdress writes an address into an IP header and a port into its TCP header, at the given offsets, and updates both
// checksums.
func readdress(ip, tcp []byte, addrAt int, addr uint32, portAt int, port uint16) {
	before, wasPort := binary.BigEndian.Uint32(ip[addrAt:]), binary.BigEndian.Uint16(tcp[portAt:])
	binary.BigEndian.PutUint32(ip[addrAt:], addr)
	binary.BigEndian.PutUint16(tcp[portAt:], port)
	replace(ip[10:12], before, addr)
	replace(tcp[tcpChecksum:tcpChecksum+2], before, addr)
	replace(tcp[tcpChecksum:tcpChecksum+2], uint32(wasPort), uint32(port))
}
