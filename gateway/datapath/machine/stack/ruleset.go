package stack

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"weak"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

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
	bases  []chain
	chains map[chainID]*body // that have rules

	mu   sync.Mutex // held while elements of sets are read
	sets map[setID]*set
}

// state is a state of netfilter's rules: each transaction makes another generation of a network namespace.
type state struct {
	namespace  uint64 // inode
	generation uint32
}

// lastRead is the ruleset that was read last, until memory is collected. Where a daemon serves several networks, each
// asks for the same one.
var lastRead struct {
	mu    sync.Mutex // held while rules are read
	state state
	rules weak.Pointer[ruleset]
}

// readRules reads all chains, rules and sets, without the sets' elements, unless they are as they were read last. A
// kernel with only other parts of netfilter's netlink has none.
func readRules(c *nftables.Conn) (*ruleset, error) {
	lastRead.mu.Lock()
	defer lastRead.mu.Unlock()
	now, err := stateOf(c)
	if errors.Is(err, syscall.EINVAL) {
		return &ruleset{}, nil
	}
	if err != nil {
		return nil, err
	}
	if r := lastRead.rules.Value(); r != nil && now == lastRead.state {
		return r, nil
	}
	r := &ruleset{chains: map[chainID]*body{}, sets: map[setID]*set{}}
	if err := r.read(c); err != nil {
		return nil, err
	}
	after, err := stateOf(c)
	if err != nil {
		return nil, err
	}
	if after == now { // otherwise it is of several states, and a change is about to be reported
		lastRead.state, lastRead.rules = now, weak.Make(r)
	}
	return r, nil
}

func stateOf(c *nftables.Conn) (s state, err error) {
	var space unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &space); err != nil {
		return s, fmt.Errorf("looking at the network namespace: %w", err)
	}
	s.namespace = space.Ino
	s.generation, err = c.Generation()
	return s, err
}

// read reads chains, rules and sets.
func (r *ruleset) read(c *nftables.Conn) error {
	messages, err := c.Dump(unix.NFT_MSG_GETCHAIN, unix.AF_UNSPEC, nil)
	if err != nil {
		return fmt.Errorf("listing chains: %w", err)
	}
	for _, m := range messages {
		if ch, ok := baseChain(m.Data); ok {
			r.bases = append(r.bases, ch)
		}
	}
	if messages, err = c.Dump(unix.NFT_MSG_GETRULE, unix.AF_UNSPEC, nil); err != nil {
		return fmt.Errorf("listing rules: %w", err)
	}
	for _, m := range messages {
		if err := r.addRule(m.Data); err != nil {
			return fmt.Errorf("reading a rule: %w", err)
		}
	}
	if messages, err = c.Dump(unix.NFT_MSG_GETSET, unix.AF_UNSPEC, nil); err != nil {
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
