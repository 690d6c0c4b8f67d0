package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Rule is a rule as the kernel has it.
type Rule struct {
	Table Table
	Chain string
	// Sources reports that it translates the sources of packets, by nftables' own statements or by iptables'.
	Sources bool
	// Helper reports that it gives connections a helper, by iptables' statement: for nftables' own see Helpers.
	Helper bool
}

// Rules lists the rules of all tables, in the kernel's order.
func (c *Conn) Rules() ([]Rule, error) {
	messages, err := c.dump(question(unix.NFT_MSG_GETRULE, unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	var rules []Rule
	for _, m := range messages {
		r, err := readRule(m.Data)
		if err != nil {
			return nil, fmt.Errorf("reading a rule: %w", err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// TableExists reports whether a table exists in this network namespace. A kernel without nftables has none.
func TableExists(t Table) (bool, error) {
	c, err := Dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close()
	var b Batch
	b.add(unix.NFT_MSG_GETTABLE, 0, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_TABLE_NAME, t.Name)
	})
	if b.err != nil {
		return false, b.err
	}
	_, err = c.c.Execute(b.messages[0])
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the table %s: %w", t.Name, err)
	}
	return true, nil
}

// question asks for all that there is of a kind.
func question(kind uint16, family Family) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump},
		Data: []byte{byte(family), unix.NFNETLINK_V0, 0, 0},
	}
}

// Dump lists what there is of a kind, one of NFT_MSG_GET..., in the tables of a family, with AF_UNSPEC of all, as
// far as attributes select it. An entry is struct nfgenmsg and attributes.
func (c *Conn) Dump(kind uint16, family Family, filter []byte) ([]netlink.Message, error) {
	q := question(kind, family)
	q.Data = append(q.Data, filter...)
	return c.dump(q)
}

// dump requests a list, and requests it again when the list changed meanwhile.
func (c *Conn) dump(question netlink.Message) ([]netlink.Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const attempts = 20
	for range attempts {
		messages, err := c.c.Execute(question)
		interrupted := func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }
		if errors.Is(err, unix.EINTR) || err == nil && slices.ContainsFunc(messages, interrupted) {
			continue
		}
		if err != nil {
			return nil, c.failed(err)
		}
		return messages, nil
	}
	return nil, fmt.Errorf("it changed %d times meanwhile", attempts)
}

// Generation returns the number of the present state of all tables: each transaction makes another. What rules
// themselves add to sets does not.
func (c *Conn) Generation() (id uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, err := c.c.Execute(netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN), Flags: netlink.Request},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, fmt.Errorf("reading the generation of rules: %w", c.failed(err))
	}
	for _, m := range got {
		if len(m.Data) < 4 {
			return 0, errors.New("reading the generation of rules: a message is cut short")
		}
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		d.ByteOrder = binary.BigEndian
		for d.Next() {
			if d.Type() == unix.NFTA_GEN_ID {
				id = d.Uint32()
			}
		}
		if err := d.Err(); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// Helpers lists the tables that have helpers of connections ("ct helper" of nftables), which rules may give.
func (c *Conn) Helpers() ([]Table, error) {
	const helper = 3 // NFT_OBJECT_CT_HELPER
	messages, err := c.dump(question(unix.NFT_MSG_GETOBJ, unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("listing helpers of connections: %w", err)
	}
	var tables []Table
	for _, m := range messages {
		if len(m.Data) < 4 {
			return nil, errors.New("listing helpers of connections: a message is cut short")
		}
		t, kind := Table{Family: Family(m.Data[0])}, uint32(0)
		err := attributes(m.Data[4:], func(d *netlink.AttributeDecoder) error {
			d.ByteOrder = binary.BigEndian
			switch d.Type() {
			case unix.NFTA_OBJ_TABLE:
				t.Name = d.String()
			case unix.NFTA_OBJ_TYPE:
				kind = d.Uint32()
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing helpers of connections: %w", err)
		}
		if kind == helper && !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// readRule decodes a message about a rule.
func readRule(data []byte) (r Rule, err error) {
	if len(data) < 4 {
		return r, errors.New("a message is cut short")
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return r, err
	}
	r.Table.Family = Family(data[0])
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_RULE_TABLE:
			r.Table.Name = d.String()
		case unix.NFTA_RULE_CHAIN:
			r.Chain = d.String()
		case unix.NFTA_RULE_EXPRESSIONS:
			d.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(x *netlink.AttributeDecoder) error { return r.readExpr(x) })
				}
				return nil
			})
		}
	}
	return r, d.Err()
}

// readExpr decodes one expression: its name, then its own attributes.
func (r *Rule) readExpr(x *netlink.AttributeDecoder) error {
	name := ""
	for x.Next() {
		switch x.Type() {
		case unix.NFTA_EXPR_NAME:
			if name = x.String(); name == "masq" {
				r.Sources = true
			}
		case unix.NFTA_EXPR_DATA:
			if name == "nat" || name == "target" {
				x.Nested(func(in *netlink.AttributeDecoder) error { return r.readNAT(name, in) })
			}
		}
	}
	return nil
}

func (r *Rule) readNAT(name string, in *netlink.AttributeDecoder) error {
	in.ByteOrder = binary.BigEndian
	target := ""
	for in.Next() {
		switch {
		case name == "nat" && in.Type() == unix.NFTA_NAT_TYPE:
			r.Sources = r.Sources || in.Uint32() == unix.NFT_NAT_SNAT
		case name == "target" && in.Type() == unix.NFTA_TARGET_INFO && target == "CT":
			const at = 12 // of the helper's name in struct xt_ct_target_info
			info := in.Bytes()
			r.Helper = r.Helper || len(info) > at && info[at] != 0
		case name == "target" && in.Type() == unix.NFTA_TARGET_NAME:
			target = in.String()
			r.Sources = r.Sources || target == "MASQUERADE" || target == "SNAT" || target == "NETMAP"
		}
	}
	return nil
}
