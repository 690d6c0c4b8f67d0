package stack

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Crossing is the interfaces at which the packets of a flow enter and leave the machine.
type Crossing struct {
	LAN, WAN           string
	LANIndex, WANIndex int
}

// Variance says whether netfilter's rules can decide differently about packets of one flow between LAN and WAN, and by
// what.
type Variance struct {
	// Established names a rule that decides packet by packet about packets of an established connection, or changes or
	// records each, and what it looks at; "": all rules that such packets meet decide by what is the same for all packets
	// of one direction: interfaces, addresses, ports, marks, DSCP, the connection's state. TCP's packets with SYN, FIN or
	// RST, fragments and packets with IP options are left out.
	Established string
	// Unanswered is the same for UDP's packets of a connection to which nothing was answered, all of which are new to
	// netfilter (ct state new).
	Unanswered string
	// Marks: such packets change their connection's mark, by which rules may decide about the next packet.
	Marks bool
}

// ReadVariance reads the rules for packets of a family, unix.NFPROTO_IPV4 or NFPROTO_IPV6. Tables for which fromOwn
// returns true do not count, as in Rules, nor do chains of type nat, which see the first packet of a connection only.
// Counters of rules do not count as recording.
func ReadVariance(family uint8, fromOwn func(family uint8, table string) bool, crossing Crossing) (
	v Variance, err error,
) {
	if names, err := legacyNames(family); err == nil && len(names) > 0 {
		reason := "the rules of the old " + families[family] + "tables cannot be read (table " + names[0] + ")"
		return Variance{reason, reason, true}, nil
	}
	c, err := nftables.Dial()
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	defer c.Close()
	r := reading{conn: c}
	if r.ruleset, err = readRules(c); err != nil {
		return v, err
	}
	of := func(protocol byte, unanswered bool) string {
		for _, ch := range r.bases {
			if !ch.meets(family) || fromOwn(ch.family, ch.table) || ch.kind == "nat" ||
				!ch.traversedBy([]string{crossing.LAN, crossing.WAN}) {
				continue
			}
			for _, up := range []bool{true, false} {
				p := packet{Crossing: crossing, family: family, protocol: protocol, up: up, unanswered: unanswered,
					tracked: ch.tracks(), hook: ch.hook}
				var reason string
				if reason, err = r.evaluate(ch, p); reason != "" || err != nil {
					return reason
				}
			}
		}
		return ""
	}
	for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		if v.Established == "" && err == nil {
			v.Established = of(protocol, false)
		}
	}
	if err == nil {
		v.Unanswered = of(unix.IPPROTO_UDP, true)
	}
	v.Marks = r.marks
	return v, err
}

// reading is the rules as a Variance is read from them.
type reading struct {
	*ruleset
	conn  *nftables.Conn // by which elements of sets are read
	marks bool           // a rule that was evaluated sets its packet's connection's mark
}

// evaluate evaluates a base chain for packets. It returns a rule that decides about them one by one, and by what; "" if
// there is none.
func (r *reading) evaluate(ch chain, p packet) (reason string, err error) {
	if ch.family == unix.NFPROTO_NETDEV && ch.hook == unix.NF_NETDEV_EGRESS {
		return "", nil // packets that bypass the stack traverse these chains too
	}
	e := evaluation{reading: r, base: ch, packet: p}
	if ch.atDevice() {
		if in, _ := p.in(); !ch.isAt(in) {
			return "", nil
		}
	}
	e.evalChain(ch.name, 0)
	return e.reason, e.err
}

// trackingPriority is the priority at which connection tracking looks at packets (NF_IP_PRI_CONNTRACK).
const trackingPriority = -200

// atDevice reports whether a chain is at interfaces.
func (c chain) atDevice() bool {
	return c.family == unix.NFPROTO_NETDEV || c.family == unix.NFPROTO_INET && c.hook == inetIngress
}

// tracks reports whether packets have their connection when they come to the chain.
func (c chain) tracks() bool {
	return !c.atDevice() && (c.hook != unix.NF_INET_PRE_ROUTING || c.priority > trackingPriority)
}
