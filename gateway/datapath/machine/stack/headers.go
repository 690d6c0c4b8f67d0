package stack

import "golang.org/x/sys/unix"

// octet returns what is known about a byte of the packets, at an offset from a header (base).
func (p packet) octet(base, at uint32) octet {
	const network, transport = 1, 2 // NFT_PAYLOAD_NETWORK_HEADER, NFT_PAYLOAD_TRANSPORT_HEADER
	switch {
	case base == network && p.family == unix.NFPROTO_IPV6:
		return p.octet6(at)
	case base == network && at == 0:
		return octet{known: 0xff, value: 0x45, source: "header"}
	case base == network && at == 1: // DSCP; ECN changes on the way
		return octet{fixed: 0xfc, source: "ECN (ip ecn)"}
	case base == network && at == 6: // DF may differ
		return octet{known: 0x3f, source: "fragment flags"}
	case base == network && at == 7:
		return octet{known: 0xff, source: "fragment offset"}
	case base == network && at == 9:
		return octet{known: 0xff, value: p.protocol, source: "protocol"}
	case base == network && at >= 12 && at < 20:
		return octet{fixed: 0xff, source: "address"}
	case base == network:
		return octet{source: map[uint32]string{2: "length (ip length)", 3: "length (ip length)", 8: "TTL (ip ttl)",
			4: "identification (ip id)", 5: "identification (ip id)"}[at]}
	case base == transport && at < 4:
		return octet{fixed: 0xff, source: "port"}
	case base == transport && at == tcpFlags && p.protocol == unix.IPPROTO_TCP:
		return octet{known: tcpFIN | tcpSYN | tcpRST | tcpACK, value: tcpACK, source: "flags (tcp flags)"}
	case base == transport:
		return octet{source: "transport header"}
	}
	return octet{source: "contents or Ethernet header"}
}

// octet6 returns what is known about a byte of the IPv6 header. DSCP and flow label count as the same for all packets,
// because the cache of flows compares them. The two bits of ECN between them vary.
func (p packet) octet6(at uint32) octet {
	switch {
	case at == 0:
		return octet{known: 0xf0, value: 0x60, fixed: 0x0f, source: "header"}
	case at == 1:
		return octet{fixed: 0xcf, source: "ECN (ip6 ecn)"}
	case at == 2 || at == 3:
		return octet{fixed: 0xff, source: "flow label (ip6 flowlabel)"}
	case at == 6:
		return octet{known: 0xff, value: p.protocol, source: "protocol"}
	case at >= 8 && at < 40:
		return octet{fixed: 0xff, source: "address"}
	}
	return octet{source: map[uint32]string{4: "length (ip6 length)", 5: "length (ip6 length)",
		7: "hop limit (ip6 hoplimit)"}[at]}
}

// Of TCP's header (RFC 9293, 3.1).
const (
	tcpFlags = 13
	tcpFIN   = 0x01
	tcpSYN   = 0x02
	tcpRST   = 0x04
	tcpACK   = 0x10
)
