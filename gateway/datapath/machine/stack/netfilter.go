// Package stack observes the kernel's network stack: which netfilter rules affect forwarding, how the stack would
// forward, and when any of that changes. Data paths that forward in its place depend on it.
package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// chain is a base chain of nftables.
type chain struct {
	family   uint8
	table    string
	name     string
	drops    bool // by its policy
	priority int32
	hook     uint32
	kind     string   // filter, nat, route
	devices  []string // of a hook at devices; a name that ends in * is a pattern
}

var families = map[uint8]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_NETDEV: "netdev"}

func (c chain) String() string {
	return fmt.Sprintf("%s %s %s", families[c.family], c.table, c.name)
}

// meets reports whether packets of a family, unix.NFPROTO_IPV4 or NFPROTO_IPV6, traverse the chain.
func (c chain) meets(family uint8) bool {
	return c.family == family || c.family == unix.NFPROTO_INET || c.family == unix.NFPROTO_NETDEV
}

const inetIngress = 5 // NF_INET_INGRESS

// traversedBy reports whether packets that these interfaces forward traverse the chain. Packets for
// interfaces other than these two may leave by any, so every chain at egress does.
func (c chain) traversedBy(interfaces []string) bool {
	switch {
	case c.family == unix.NFPROTO_NETDEV && c.hook == unix.NF_NETDEV_EGRESS:
		return true
	case c.family == unix.NFPROTO_NETDEV, c.family == unix.NFPROTO_INET && c.hook == inetIngress:
		return slices.ContainsFunc(interfaces, c.isAt)
	}
	return c.hook == unix.NF_INET_PRE_ROUTING || c.hook == unix.NF_INET_FORWARD || c.hook == unix.NF_INET_POST_ROUTING
}

// isAt reports whether the chain is at an interface.
func (c chain) isAt(name string) bool {
	return slices.ContainsFunc(c.devices, func(dev string) bool {
		start, pattern := strings.CutSuffix(dev, "*")
		return dev == name || pattern && strings.HasPrefix(name, start)
	})
}

// legacyNames lists the tables of the kernel's old iptables that handle forwarded packets. Whether they have rules
// cannot be seen, so an existing table counts.
func legacyNames(family uint8) ([]string, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + families[family] + "_tables_names")
	return strings.Fields(string(names)), err
}

// Rules names the chains that affect IPv4 packets forwarded between interfaces: base chains at prerouting, forward and
// postrouting, at the interfaces' ingress and at any egress, that hold a rule or drop by policy. Tables for which
// fromOwn returns true do not count; family is unix.NFPROTO_INET, NFPROTO_IPV4 or NFPROTO_NETDEV.
func Rules(fromOwn func(family uint8, table string) bool, interfaces ...string) ([]string, error) {
	return rules(unix.NFPROTO_IPV4, fromOwn, interfaces)
}

// Rules6 is Rules for IPv6 packets; family may be unix.NFPROTO_IPV6 and never NFPROTO_IPV4.
func Rules6(fromOwn func(family uint8, table string) bool, interfaces ...string) ([]string, error) {
	return rules(unix.NFPROTO_IPV6, fromOwn, interfaces)
}

func rules(family uint8, fromOwn func(family uint8, table string) bool, interfaces []string) ([]string, error) {
	if names, err := legacyNames(family); err == nil && len(names) > 0 {
		var old []string
		for _, n := range names {
			old = append(old, families[family]+"tables table "+n)
		}
		return old, nil
	}
	c, err := nftables.Dial()
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		return nil, nil // a kernel without nftables has no rules
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all, err := readRules(c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, ch := range all.bases {
		has := ch.drops || all.chains[chainID{ch.family, ch.table, ch.name}] != nil
		if has && ch.meets(family) && ch.traversedBy(interfaces) && !fromOwn(ch.family, ch.table) {
			names = append(names, ch.String())
		}
	}
	return names, nil
}

// baseChain decodes a chain (nfgenmsg, then attributes) and reports whether it is a base chain that IP packets may
// traverse.
func baseChain(data []byte) (chain, bool) {
	attrs, family, ok := decoder(data)
	if !ok || families[family] == "" {
		return chain{}, false
	}
	ch, based := chain{family: family}, false
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NFTA_CHAIN_TABLE:
			ch.table = attrs.String()
		case unix.NFTA_CHAIN_NAME:
			ch.name = attrs.String()
		case unix.NFTA_CHAIN_POLICY:
			ch.drops = attrs.Uint32() == 0 // NF_DROP
		case unix.NFTA_CHAIN_TYPE:
			ch.kind = attrs.String()
		case unix.NFTA_CHAIN_HOOK:
			based = true
			attrs.Nested(ch.decodeHook)
		}
	}
	return ch, attrs.Err() == nil && based
}

// Attributes of devices (linux/netfilter/nf_tables.h).
const (
	hookDevices  = 4 // NFTA_HOOK_DEVS
	deviceName   = 1 // NFTA_DEVICE_NAME
	devicePrefix = 2 // NFTA_DEVICE_PREFIX
)

// decodeHook decodes where a base chain is.
func (c *chain) decodeHook(in *netlink.AttributeDecoder) error {
	in.ByteOrder = binary.BigEndian
	for in.Next() {
		switch in.Type() {
		case unix.NFTA_HOOK_HOOKNUM:
			c.hook = in.Uint32()
		case unix.NFTA_HOOK_PRIORITY:
			c.priority = int32(in.Uint32())
		case unix.NFTA_HOOK_DEV:
			c.devices = append(c.devices, in.String())
		case hookDevices:
			in.Nested(func(dev *netlink.AttributeDecoder) error {
				for dev.Next() {
					switch dev.Type() {
					case deviceName:
						c.devices = append(c.devices, dev.String())
					case devicePrefix:
						c.devices = append(c.devices, dev.String()+"*")
					}
				}
				return nil
			})
		}
	}
	return nil
}

// decoder skips the header of an nftables message and returns its family.
func decoder(data []byte) (attrs *netlink.AttributeDecoder, family uint8, ok bool) {
	if len(data) < 4 {
		return nil, 0, false
	}
	attrs, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return nil, 0, false
	}
	attrs.ByteOrder = binary.BigEndian
	return attrs, data[0], true
}
