// The evaluation of nftables rules for all packets of a flow at once (ReadVariance in constant.go).

package stack

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// packet has what is known about all packets of one direction of a flow, for which rules are evaluated.
type packet struct {
	Crossing
	family   uint8 // unix.NFPROTO_IPV4 or NFPROTO_IPV6
	protocol byte
	up       bool // from the LAN to the WAN
	tracked  bool // the chain comes after connection tracking
	// unanswered: the connection is UDP's, and its other side has sent nothing.
	unanswered bool
	hook       uint32
}

// in and out are the interfaces of the packet's direction.
func (p packet) in() (string, int) {
	if p.up {
		return p.LAN, p.LANIndex
	}
	return p.WAN, p.WANIndex
}

func (p packet) out() (string, int) {
	p.up = !p.up
	return p.in()
}

// evaluation evaluates a base chain for the packets of a flow. It ends at the first rule whose result varies from
// packet to packet.
type evaluation struct {
	*reading
	packet packet
	base   chain
	reason string // names that rule and what it varies with; "": there is none
	err    error

	r registers
}

// chainEnd says how packets leave a rule or a chain.
type chainEnd int

const (
	goesOn    chainEnd = iota // packets may go on to the next rule
	leaves                    // all packets leave the chain
	isDecided                 // all packets have their verdict
)

const depthMax = 16 // the kernel's NFT_JUMP_STACK_SIZE

// evalChain evaluates a chain's rules.
func (e *evaluation) evalChain(name string, depth int) chainEnd {
	ch := e.chains[chainID{e.base.family, e.base.table, name}]
	if ch == nil || depth > depthMax {
		return goesOn
	}
	for _, r := range ch.rules {
		end, varying := e.rule(r, depth)
		if varying != "" && e.reason == "" {
			e.reason = fmt.Sprintf(
				"a rule in %s %s %s (handle %d) %s", families[e.base.family], e.base.table, name, r.handle, varying)
		}
		if e.reason != "" || e.err != nil || end == isDecided {
			return end
		}
		if end == leaves {
			return goesOn
		}
	}
	return goesOn
}

// rule evaluates a rule. varying says how it varies.
func (e *evaluation) rule(r rule, depth int) (at chainEnd, varying string) {
	e.r = registers{}
	sure := true // all of the rule's matches so far are certain
	for _, x := range r.exprs {
		t, verdict, varying := e.expression(x)
		switch {
		case varying != "":
			return goesOn, varying
		case t == never:
			return goesOn, ""
		case t == unknown:
			sure = false
		}
		for i, v := range verdict {
			at := e.followVerdict(v, depth)
			if e.reason != "" || e.err != nil {
				return at, ""
			}
			if sure && len(verdict) == 1 && i == 0 && at != goesOn {
				return at, ""
			}
		}
	}
	return goesOn, ""
}

// verdict is the verdict that a rule gives.
type verdict struct {
	code  int32
	chain string
}

// followVerdict tells where a verdict leads.
func (e *evaluation) followVerdict(v verdict, depth int) chainEnd {
	switch v.code {
	case unix.NFT_JUMP:
		return e.evalChain(v.chain, depth+1)
	case unix.NFT_GOTO:
		if e.evalChain(v.chain, depth+1) == isDecided {
			return isDecided
		}
		return leaves
	case unix.NFT_RETURN:
		return leaves
	case nfAccept, nfDrop:
		return isDecided
	}
	return goesOn // continue, break
}

// Verdicts of netfilter (linux/netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
	nfQueue  = 3
)

// expression evaluates one expression. t says whether it matches; never ends the rule. verdicts are the verdicts that
// it may give. varying names the value on which match or verdict depends, if that varies from packet to packet;
// otherwise it is empty.
func (e *evaluation) expression(x expression) (t truth, verdicts []verdict, varying string) {
	a := fields(x.data)
	switch x.name {
	case "meta":
		return e.meta(a)
	case "ct":
		return e.ct(a)
	case "payload":
		return e.payload(a)
	case "cmp":
		return e.compare(a)
	case "range":
		return unknown, nil,
			matchWords(whatVaries(e.r.bytes(a.number(unix.NFTA_RANGE_SREG), uint32(len(a.value(unix.NFTA_RANGE_FROM_DATA))))))
	case "bitwise":
		return always, nil, e.bitwise(a)
	case "byteorder":
		return always, nil, e.convert(a, unix.NFTA_BYTEORDER_SREG, unix.NFTA_BYTEORDER_DREG, a.number(
			unix.NFTA_BYTEORDER_LEN), a.number(unix.NFTA_BYTEORDER_LEN))
	case "hash":
		return e.hash(a)
	case "immediate":
		return e.immediate(a)
	case "lookup":
		return e.lookup(a)
	case "fib", "rt", "xfrm":
		e.load(a.number(1), fixed(x.name, 16)) // NFTA_FIB_DREG, NFTA_RT_DREG, NFTA_XFRM_DREG
		return always, nil, ""
	case "counter", "last", "notrack":
		return always, nil, ""
	case "masq", "nat", "redir":
		return always, []verdict{{code: nfAccept}}, ""
	case "reject":
		return always, []verdict{{code: nfDrop}}, ""
	case "objref":
		return always, nil, object(a)
	case "match":
		return e.match(a)
	case "target":
		return e.target(a)
	}
	return always, nil, actionWords(x.name)
}

// matchWords and does word how a rule varies.
func matchWords(at string) string {
	if at == "" {
		return ""
	}
	return "looks at each packet's " + at
}

var actions = map[string]string{
	"limit": "limits a rate (limit)", "quota": "counts against a quota", "log": "logs packets (log)",
	"queue": "queues packets to a program", "connlimit": "counts connections (ct count)",
	"numgen": "draws numbers (numgen)", "dynset": "adds to a set", "exthdr": "looks at options in headers or changes them",
	"flow_offload": "has a flowtable forward (flow add)", "socket": "looks for sockets",
	"dup": "copies packets (dup)", "fwd": "forwards packets itself (fwd)", "tproxy": "hands packets to a proxy (tproxy)",
	"synproxy": "answers for servers (synproxy)",
}

func actionWords(name string) string {
	if words := actions[name]; words != "" {
		return words
	}
	return "has " + name + ", which gatewayd does not know"
}

// load sets a register; the kernel fills its last four bytes up with zeros.
func (e *evaluation) load(n uint32, o []octet) {
	if rest := len(o) % 4; rest > 0 {
		o = append(o[:len(o):len(o)], value("", make([]byte, 4-rest)...)...)
	}
	copy(e.r.bytes(n, uint32(len(o))), o)
}

// meta loads a property of the packet itself (nftables' meta).
func (e *evaluation) meta(a attributes) (t truth, v []verdict, varying string) {
	key := a.number(unix.NFTA_META_KEY)
	if a.has(unix.NFTA_META_SREG) {
		switch key {
		case unix.NFT_META_MARK, unix.NFT_META_PRIORITY:
			return always, nil, matchWords(whatVaries(e.r.bytes(a.number(unix.NFTA_META_SREG), 4)))
		}
		return always, nil, "sets what concerns one packet (meta)"
	}
	in, inIndex := e.packet.in()
	out, outIndex := e.packet.out()
	outKnown := e.packet.hook == unix.NF_INET_FORWARD || e.packet.hook == unix.NF_INET_POST_ROUTING
	name := func(varying, s string) []octet {
		return value(varying, append([]byte(s), make([]byte, unix.IFNAMSIZ-len(s))...)...)
	}
	var o []octet
	switch key {
	case unix.NFT_META_PROTOCOL:
		o = value("protocol", binary.BigEndian.AppendUint16(nil, etherTypes[e.packet.family])...)
	case unix.NFT_META_NFPROTO:
		o = value("protocol", e.packet.family)
	case unix.NFT_META_L4PROTO:
		o = value("protocol", e.packet.protocol)
	case unix.NFT_META_IIF:
		o = knownOctets("interface", uint32(inIndex))
	case unix.NFT_META_IIFNAME:
		o = name("interface", in)
	case unix.NFT_META_OIF:
		o = knownOctets("interface", uint32(outIndex))
	case unix.NFT_META_OIFNAME:
		o = name("interface", out)
	case unix.NFT_META_MARK, unix.NFT_META_IIFTYPE, unix.NFT_META_OIFTYPE, unix.NFT_META_IIFGROUP, unix.NFT_META_OIFGROUP,
		unix.NFT_META_SECMARK, unix.NFT_META_RTCLASSID:
		o = fixed("mark", 4)
	case unix.NFT_META_PKTTYPE:
		o = value("type", 0) // PACKET_HOST
	default:
		o = unknownOctets(metaNames[key], 16)
	}
	if !outKnown && (key == unix.NFT_META_OIF || key == unix.NFT_META_OIFNAME) {
		return never, nil, "" // there is none yet: the expression ends the rule
	}
	e.load(a.number(unix.NFTA_META_DREG), o)
	return always, nil, ""
}

var etherTypes = map[uint8]uint16{unix.NFPROTO_IPV4: unix.ETH_P_IP, unix.NFPROTO_IPV6: unix.ETH_P_IPV6}

var metaNames = map[uint32]string{
	unix.NFT_META_LEN: "length (meta length)", unix.NFT_META_PRIORITY: "priority (meta priority)",
	unix.NFT_META_CPU: "CPU (meta cpu)", unix.NFT_META_PRANDOM: "random number (meta random)",
	30: "time (meta time)", 31: "day (meta day)", 32: "hour (meta hour)", unix.NFT_META_SKUID: "socket (meta skuid)",
	unix.NFT_META_SKGID: "socket (meta skgid)", unix.NFT_META_CGROUP: "socket (meta cgroup)",
}

// Connection tracking's states as bits (NF_CT_STATE_BIT, NF_CT_STATE_INVALID_BIT).
const (
	stateInvalid     = 1
	stateEstablished = 2
	stateNew         = 8
)

// state is the packet's.
func (p packet) state() uint32 {
	switch {
	case !p.tracked:
		return stateInvalid
	case p.unanswered:
		return stateNew
	}
	return stateEstablished
}

// ct loads a property of the packet's connection (nftables' ct).
func (e *evaluation) ct(a attributes) (t truth, v []verdict, varying string) {
	key := a.number(unix.NFTA_CT_KEY)
	if a.has(unix.NFTA_CT_SREG) {
		if key == unix.NFT_CT_LABELS || key == unix.NFT_CT_SECMARK {
			return always, nil, "changes connections (ct label, ct secmark)"
		}
		e.marks = true
		return always, nil, matchWords(whatVaries(e.r.bytes(a.number(unix.NFTA_CT_SREG), 4)))
	}
	if !e.packet.tracked && key != unix.NFT_CT_STATE {
		return never, nil, ""
	}
	var o []octet
	switch key {
	case unix.NFT_CT_STATE:
		o = knownOctets("state", e.packet.state())
	case unix.NFT_CT_EXPIRATION:
		o = unknownOctets("connection's expiry (ct expiration)", 16)
	case unix.NFT_CT_PKTS, unix.NFT_CT_BYTES, unix.NFT_CT_AVGPKT:
		o = unknownOctets("connection's counters (ct bytes, ct packets)", 16)
	default:
		o = fixed("connection", 16)
	}
	e.load(a.number(unix.NFTA_CT_DREG), o)
	return always, nil, ""
}

// payload loads bytes of the packet's headers.
func (e *evaluation) payload(a attributes) (t truth, v []verdict, varying string) {
	if a.has(unix.NFTA_PAYLOAD_SREG) {
		return always, nil, "changes packets"
	}
	offset, n := a.number(unix.NFTA_PAYLOAD_OFFSET), a.number(unix.NFTA_PAYLOAD_LEN)
	if n > 64 || offset > 1<<16 {
		return always, nil, "looks at much of each packet"
	}
	o := make([]octet, n)
	for i := range o {
		o[i] = e.packet.octet(a.number(unix.NFTA_PAYLOAD_BASE), offset+uint32(i))
	}
	e.load(a.number(unix.NFTA_PAYLOAD_DREG), o)
	return always, nil, ""
}

// compare compares a register with a value.
func (e *evaluation) compare(a attributes) (t truth, v []verdict, varying string) {
	want := a.value(unix.NFTA_CMP_DATA)
	o := e.r.bytes(a.number(unix.NFTA_CMP_SREG), uint32(len(want)))
	t, varying = equals(o, want)
	switch a.number(unix.NFTA_CMP_OP) {
	case unix.NFT_CMP_EQ:
	case unix.NFT_CMP_NEQ:
		t = t.not()
	default:
		t, varying = unknown, whatVaries(o)
	}
	if t != unknown {
		return t, nil, ""
	}
	return unknown, nil, matchWords(varying)
}

// bitwise masks a register; other operations make all of it as certain as its least certain bit.
func (e *evaluation) bitwise(a attributes) (varying string) {
	n, mask, xor := a.number(unix.NFTA_BITWISE_LEN), a.value(unix.NFTA_BITWISE_MASK), a.value(unix.NFTA_BITWISE_XOR)
	if len(mask) != int(n) || len(xor) != int(n) {
		return e.convert(a, unix.NFTA_BITWISE_SREG, unix.NFTA_BITWISE_DREG, n, n)
	}
	from := slices.Clone(e.r.bytes(a.number(unix.NFTA_BITWISE_SREG), n))
	for i := range from {
		from[i] = from[i].mask(mask[i], xor[i])
	}
	e.load(a.number(unix.NFTA_BITWISE_DREG), from)
	return ""
}

// convert computes a register from another in a way that is not followed.
func (e *evaluation) convert(a attributes, source, target uint16, n, out uint32) (varying string) {
	from := e.r.bytes(a.number(source), n)
	if from == nil || out > 64 {
		return "has an expression that gatewayd does not know"
	}
	if varying := whatVaries(from); varying != "" {
		e.load(a.number(target), unknownOctets(varying, int(out)))
		return ""
	}
	e.load(a.number(target), fixed("", int(out)))
	return ""
}

// hash hashes a register; the hash that the packet has already is of its flow, but not of each direction's alone.
func (e *evaluation) hash(a attributes) (t truth, v []verdict, varying string) {
	const sreg, dreg, length, kind = 1, 2, 3, 7 // NFTA_HASH_SREG, _DREG, _LEN, _TYPE
	if a.number(kind) != 0 {
		return always, nil, "looks at the packet's hash (symhash)"
	}
	return always, nil, e.convert(a, sreg, dreg, a.number(length), 4)
}

// immediate loads a value or gives a verdict.
func (e *evaluation) immediate(a attributes) (t truth, v []verdict, varying string) {
	if dreg := a.number(unix.NFTA_IMMEDIATE_DREG); dreg != unix.NFT_REG_VERDICT {
		e.load(dreg, value("", a.value(unix.NFTA_IMMEDIATE_DATA)...))
		return always, nil, ""
	}
	got := a.verdict(unix.NFTA_IMMEDIATE_DATA)
	if got.code&0xff == nfQueue {
		return always, nil, actionWords("queue")
	}
	return always, []verdict{got}, ""
}

// object refers to an object of the ruleset.
func object(a attributes) (varying string) {
	const counter, helper, timeout = 1, 3, 7 // NFT_OBJECT_COUNTER, _CT_HELPER, _CT_TIMEOUT
	switch kind := a.number(unix.NFTA_OBJREF_IMM_TYPE); kind {
	case counter, helper, timeout:
		return ""
	case 2, 4:
		return actions[map[uint32]string{2: "quota", 4: "limit"}[kind]]
	}
	return "refers to an object that may vary"
}
