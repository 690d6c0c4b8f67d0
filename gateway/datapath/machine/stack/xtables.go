package stack

import (
	"encoding/binary"
)

// Rules of iptables (its nft variant) have matches and targets of xtables as expressions.

// Attributes of matches and targets (linux/netfilter/nf_tables_compat.h).
const (
	xtName = 1 // NFTA_MATCH_NAME, NFTA_TARGET_NAME
	xtInfo = 3 // NFTA_MATCH_INFO, NFTA_TARGET_INFO
)

// constantMatches are matches that have the same result for all packets of a flow.
var constantMatches = map[string]bool{
	"comment": true, "addrtype": true, "iprange": true, "mark": true, "connmark": true, "multiport": true, "pkttype": true}

// match evaluates a match of xtables.
func (e *evaluation) match(a attributes) (t truth, v []verdict, varying string) {
	name, info := a.text(xtName), a[xtInfo]
	switch {
	case constantMatches[name]:
		return unknown, nil, ""
	case name == "udp":
		return unknown, nil, ""
	case name == "tcp" && len(info) >= 12: // struct xt_tcp
		return flagsMatch(info)
	case name == "conntrack" && len(info) >= 154: // struct xt_conntrack_mtinfo3
		return e.conntrack(info)
	case name == "state" && len(info) >= 4: // struct xt_state_info
		return e.inState(uint16(binary.NativeEndian.Uint32(info))), nil, ""
	}
	return unknown, nil, "has the match " + name + ", which may vary"
}

// flagsMatch evaluates the match "tcp", which compares ports, TCP's flags and options.
func flagsMatch(info []byte) (t truth, v []verdict, varying string) {
	option, mask, want, inverted := info[8], info[9], info[10], info[11]
	const known, invertFlags = tcpFIN | tcpSYN | tcpRST | tcpACK, 4 // XT_TCP_INV_FLAGS
	switch {
	case option != 0:
		return unknown, nil, matchWords("TCP options")
	case mask == 0:
		return unknown, nil, "" // only ports are compared
	case mask&^known != 0 && (mask&known)&(tcpACK^want) == 0:
		return unknown, nil, matchWords("flags")
	}
	same := (mask&known)&(tcpACK^want) == 0
	if same != (inverted&invertFlags != 0) {
		return unknown, nil, "" // the flags match, and ports decide
	}
	return never, nil, ""
}

// Bits of struct xt_conntrack_mtinfo3.
const (
	xtConntrackState   = 1 << 0
	xtConntrackExpires = 1 << 7
)

// conntrack evaluates a match of connections.
func (e *evaluation) conntrack(info []byte) (t truth, v []verdict, varying string) {
	flags, inverted := binary.NativeEndian.Uint16(info[146:]), binary.NativeEndian.Uint16(info[148:])
	if flags&xtConntrackExpires != 0 {
		return unknown, nil, matchWords("connection's expiry")
	}
	if flags&xtConntrackState == 0 {
		return unknown, nil, ""
	}
	t = e.inState(binary.NativeEndian.Uint16(info[150:]))
	if inverted&xtConntrackState != 0 {
		t = t.not()
	}
	if t == always && flags != xtConntrackState {
		t = unknown
	}
	return t, nil, ""
}

// inState reports whether the packet's state is in a mask of states.
func (e *evaluation) inState(mask uint16) truth {
	if mask&uint16(e.packet.state()) != 0 {
		return always
	}
	return never
}

// target evaluates a target of xtables.
func (e *evaluation) target(a attributes) (t truth, v []verdict, varying string) {
	switch name := a.text(xtName); name {
	case "CONNMARK":
		e.marks = true
		return always, nil, ""
	case "MARK", "CT", "NOTRACK", "CLASSIFY":
		return always, nil, ""
	case "REJECT":
		return always, []verdict{{code: nfDrop}}, ""
	case "MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP":
		return always, []verdict{{code: nfAccept}}, ""
	default:
		return always, nil, "has the target " + name + ", which may vary"
	}
}
