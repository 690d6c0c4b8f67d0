package stack

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
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

// ReadVariance reads the rules. Tables for which own returns true do not count, as in Rules, and chains of type nat
// neither, which see the first packet of a connection only. Counters of rules do not count as recording.
func ReadVariance(fromOwn func(family uint8, table string) bool, crossing Crossing) (v Variance, err error) {
	if names, err := legacyNames(unix.NFPROTO_IPV4); err == nil && len(names) > 0 {
		reason := "the rules of the old iptables cannot be read (table " + names[0] + ")"
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
	r := ruleset{conn: c, chains: map[chainID]*body{}, sets: map[setID]*set{}}
	if err := r.read(); err != nil {
		return v, err
	}
	of := func(protocol byte, unanswered bool) string {
		for _, ch := range r.bases {
			if !ch.meets(unix.NFPROTO_IPV4) || fromOwn(ch.family, ch.table) || ch.kind == "nat" ||
				!ch.traversedBy([]string{crossing.LAN, crossing.WAN}) {
				continue
			}
			for _, up := range []bool{true, false} {
				p := packet{Crossing: crossing, protocol: protocol, up: up, unanswered: unanswered, tracked: ch.tracks(),
					hook: ch.hook}
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

type (
	// chainID names a chain: its table, with the family, and its name.
	chainID struct {
		family      uint8
		table, name string
	}
	// setID names a set of a table.
	setID struct {
		family      uint8
		table, name string
	}
)

// body is the rules of a chain, in order.
type body struct {
	rules []rule
}

// rule is the expressions of a rule, with the handle by which nft names it.
type rule struct {
	handle uint64
	exprs  []expression
}

// expression is one expression of a rule: its name, and its attributes.
type expression struct {
	name string
	data []byte
}

// ruleset is all rules, chains and sets of netfilter, as read from the kernel.
type ruleset struct {
	conn   *nftables.Conn
	bases  []chain
	chains map[chainID]*body
	sets   map[setID]*set
	marks  bool // a rule that was evaluated sets its packet's connection's mark
}

// read reads chains, rules and sets, without the sets' elements.
func (r *ruleset) read() error {
	messages, err := r.conn.Dump(unix.NFT_MSG_GETCHAIN, unix.AF_UNSPEC, nil)
	if errors.Is(err, syscall.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing chains: %w", err)
	}
	for _, m := range messages {
		if ch, ok := baseChain(m.Data); ok {
			r.bases = append(r.bases, ch)
		}
	}
	if messages, err = r.conn.Dump(unix.NFT_MSG_GETRULE, unix.AF_UNSPEC, nil); err != nil {
		return fmt.Errorf("listing rules: %w", err)
	}
	for _, m := range messages {
		if err := r.addRule(m.Data); err != nil {
			return fmt.Errorf("reading a rule: %w", err)
		}
	}
	if messages, err = r.conn.Dump(unix.NFT_MSG_GETSET, unix.AF_UNSPEC, nil); err != nil {
		return fmt.Errorf("listing sets: %w", err)
	}
	for _, m := range messages {
		if id, s, ok := decodeSet(m.Data); ok {
			r.sets[id] = s
		}
	}
	return nil
}

func (r *ruleset) addRule(data []byte) error {
	attrs, family, ok := decoder(data)
	if !ok {
		return errors.New("it is cut short")
	}
	id, in := chainID{family: family}, rule{}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NFTA_RULE_TABLE:
			id.table = attrs.String()
		case unix.NFTA_RULE_CHAIN:
			id.name = attrs.String()
		case unix.NFTA_RULE_HANDLE:
			in.handle = attrs.Uint64()
		case unix.NFTA_RULE_EXPRESSIONS:
			attrs.Nested(in.decode)
		}
	}
	if r.chains[id] == nil {
		r.chains[id] = &body{}
	}
	r.chains[id].rules = append(r.chains[id].rules, in)
	return attrs.Err()
}

// decode reads the list of expressions.
func (r *rule) decode(list *netlink.AttributeDecoder) error {
	for list.Next() {
		var e expression
		list.Nested(func(in *netlink.AttributeDecoder) error {
			for in.Next() {
				switch in.Type() {
				case unix.NFTA_EXPR_NAME:
					e.name = in.String()
				case unix.NFTA_EXPR_DATA:
					e.data = slices.Clone(in.Bytes())
				}
			}
			return nil
		})
		r.exprs = append(r.exprs, e)
	}
	return nil
}

// evaluate evaluates a base chain for a kind of packet.
func (r *ruleset) evaluate(ch chain, p packet) (reason string, err error) {
	if ch.family == unix.NFPROTO_NETDEV && ch.hook == unix.NF_NETDEV_EGRESS {
		return "", nil // redirected packets come by there
	}
	e := evaluation{ruleset: r, base: ch, packet: p}
	if ch.atDevice() {
		if in, _ := p.in(); !ch.isAt(in) {
			return "", nil
		}
	}
	e.evalChain(ch.name, 0)
	return e.reason, e.err
}

// trackingPriority is that at which connection tracking looks at packets (NF_IP_PRI_CONNTRACK).
const trackingPriority = -200

// atDevice reports whether a chain is at interfaces.
func (c chain) atDevice() bool {
	return c.family == unix.NFPROTO_NETDEV || c.family == unix.NFPROTO_INET && c.hook == inetIngress
}

// tracks reports whether packets have their connection when they come to the chain.
func (c chain) tracks() bool {
	return !c.atDevice() && (c.hook != unix.NF_INET_PRE_ROUTING || c.priority > trackingPriority)
}
