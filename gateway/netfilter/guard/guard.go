// Package guard keeps the kernel from forwarding for a LAN without a data path. It installs nftables rules by interface
// name, which outlive the daemon, the data path's programs, and the interfaces.
//
//	LAN ──▶ frames (netdev ingress) ──▶ stack ──▶ forwarding (inet forward) ──▶ anywhere
//	        drops all, if asked to                drops what no data path judges
//
// A data path's programs belong to one device and disappear with it. A device that replaces it has the same name but no
// programs. It also has another index, which the rules check: no mark is needed, and packets that are redirected ahead
// of the stack never meet the rules. Where programs are detached by hand, the data path's watcher shuts the guard, by
// letting it know no interface, until they are back. The guard does not protect against an administrator who creates an
// interface with a chosen index.
package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Guard names the interfaces of a LAN and a WAN between which the kernel forwards nothing unless a data path judges it.
type Guard struct {
	LAN string // interface; packets from or to it pass only if a data path judges them
	// interface where packets for the LAN are judged too; empty: the kernel forwards nothing from or to the LAN
	WAN     string
	Prefix  netip.Prefix // the LAN's network, with a WAN
	Gateway netip.Addr   // the gateway's address in it, with a WAN
}

// knownSet is the set of interfaces, by index, that were given to Know.
const knownSet = "known"

// Shut has the kernel drop forwarded packets that arrive or leave by an interface of the LAN's name, except interfaces
// given to Know. From a WAN that was not given to Know, packets with source addresses of the LAN or the gateway are
// dropped. Calling it again has no effect and leaves no gap, and known interfaces stay known.
func (g Guard) Shut() error { return change("guarding "+g.LAN, g.shut) }

func (g Guard) shut(b *nftables.Batch) {
	t := forwarding(g.LAN)
	b.AddTable(t)
	b.AddSet(t, nftables.Set{Name: knownSet, KeyType: nftables.TypeInterface, KeyBytes: 4})
	g.forward(b)
	var rules [][]nftables.Expr
	if g.WAN != "" { // masquerading rules may have changed the source
		rules = append(rules, g.dropForged(netip.PrefixFrom(g.Gateway, 32)))
	}
	chain(b, t, "postrouting", nftables.Hook{Number: unix.NF_INET_POST_ROUTING, Priority: 500}, rules)
}

// forward replaces the rules for forwarded packets. They compare names, and come after rules that accept packets
// between known interfaces by index, because comparing names takes several times as long.
func (g Guard) forward(b *nftables.Batch, indexes ...int) {
	var rules [][]nftables.Expr
	for _, from := range indexes {
		for _, to := range indexes {
			if from != to {
				rules = append(rules, []nftables.Expr{nftables.Meta(0, unix.NFT_META_IIF), nftables.Equal(0, number(from)),
					nftables.Meta(0, unix.NFT_META_OIF), nftables.Equal(0, number(to)), nftables.Accept()})
			}
		}
	}
	rules = append(rules, append(append(nftables.CameBy(g.LAN), byUnknown()...), nftables.Drop()),
		append(nftables.LeavesBy(g.LAN), nftables.Meta(0, unix.NFT_META_OIF), nftables.NotIn(knownSet, 0), nftables.Drop()))
	if g.WAN != "" {
		rules = append(rules, g.dropForged(g.Prefix))
	}
	chain(b, forwarding(g.LAN), "forward", nftables.Hook{Number: unix.NF_INET_FORWARD, Priority: -500}, rules)
}

// dropForged drops packets to the LAN that come from inside a network, by a WAN that is not known.
func (g Guard) dropForged(from netip.Prefix) []nftables.Expr {
	return slices.Concat(
		[]nftables.Expr{nftables.Meta(0, unix.NFT_META_NFPROTO), nftables.Equal(0, []byte{unix.NFPROTO_IPV4})},
		nftables.FromNetwork(from), nftables.CameBy(g.WAN), byUnknown(), nftables.LeavesBy(g.LAN),
		[]nftables.Expr{nftables.Drop()})
}

// byUnknown matches packets that came by an interface which is not in the set knownSet.
func byUnknown() []nftables.Expr {
	return []nftables.Expr{nftables.Meta(0, unix.NFT_META_IIF), nftables.NotIn(knownSet, 0)}
}

// number is an interface's index as rules compare it.
func number(index int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(index)) }

// chain replaces the rules at a hook. Without rules it creates no chain, because every packet would pay for it.
func chain(b *nftables.Batch, t nftables.Table, name string, hook nftables.Hook, rules [][]nftables.Expr) {
	hook.Type = "filter"
	b.AddChain(t, name, &hook)
	b.ClearChain(t, name)
	if len(rules) == 0 {
		b.DeleteChain(t, name)
	}
	for _, r := range rules {
		b.AddRule(t, name, r...)
	}
}

// Know lets packets of these interfaces, by index, pass after Shut: a data path judges them, or they do not belong to
// the LAN and need no comparison of names. Interfaces of earlier calls are no longer known.
func (g Guard) Know(indexes ...int) error {
	return change("letting what "+g.LAN+" forwards through", func(b *nftables.Batch) { g.know(b, indexes) })
}

func (g Guard) know(b *nftables.Batch, indexes []int) {
	t := forwarding(g.LAN)
	b.ClearSet(t, knownSet)
	for _, i := range indexes {
		b.AddElements(t, knownSet, nftables.Element{Key: number(i)})
	}
	g.forward(b, indexes...)
}

// Renew is Shut and Know in one step, between which no packet is dropped.
func (g Guard) Renew(indexes ...int) error {
	return change("guarding "+g.LAN+" again", func(b *nftables.Batch) { g.renew(b, indexes) })
}

func (g Guard) renew(b *nftables.Batch, indexes []int) {
	g.shut(b)
	g.know(b, indexes)
}

// RenewWithFrames is ShutFrames and Renew in one step: frames from and to the LAN are shut off at the same moment.
func (g Guard) RenewWithFrames(gateway netip.Addr, indexes ...int) error {
	return change("shutting "+g.LAN+" off and guarding it", func(b *nftables.Batch) {
		shutFrames(b, g.LAN, gateway)
		g.renew(b, indexes)
	})
}

// IsOwnTable reports whether a table of nftables, of the inet family, is a Guard's, or another one of gatewayd's
// without effect on packets. Those that count connections are neither.
func IsOwnTable(table string) bool {
	return strings.HasPrefix(table, Prefix) && !strings.HasPrefix(table, CountingPrefix)
}

// CountsConnections reports whether a table of nftables counts clients' connections. It is there before a data path
// opens, and what changes in it changes the way of no packet but the first of a connection.
func CountsConnections(family uint8, table string) bool {
	return family == uint8(nftables.Inet) && strings.HasPrefix(table, CountingPrefix)
}

// CountingPrefix begins the names of tables that count connections (package connlimit). No table of Guard's begins so,
// because their names have no hyphen after the first.
const CountingPrefix = Prefix + "connections-"

// Remove removes Shut's table of a LAN, if it exists: the kernel then forwards for everybody.
func Remove(lan string) error { return remove(forwarding(lan), "giving up guarding "+lan) }

// ShutFrames has the kernel drop every frame of the LAN ahead of its stack, after packet sockets for all protocols have
// received it. DHCP requests continue to the DHCP server's packet socket only, because their destination is the
// gateway. Calling it again has no effect and leaves no gap. The rule disappears with the interface.
func ShutFrames(lan string, gateway netip.Addr) error {
	return change("shutting "+lan+" off from the kernel's stack",
		func(b *nftables.Batch) { shutFrames(b, lan, gateway) })
}

func shutFrames(b *nftables.Batch, lan string, gateway netip.Addr) {
	const chain, dhcpServer, portAt, kindAt = "lan", 67, 2, 12 // bytes into the headers of UDP and Ethernet
	t := frames(lan)
	b.DeleteTable(t)
	b.AddTable(t)
	b.AddChain(t, chain, &nftables.Hook{
		Type: "filter", Number: unix.NF_NETDEV_INGRESS, Priority: -500, Device: lan, Drops: true})
	big := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	for _, to := range []netip.Addr{netip.AddrFrom4([4]byte{255, 255, 255, 255}), gateway} {
		b.AddRule(t, chain, slices.Concat(
			[]nftables.Expr{nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_UDP}),
				nftables.Payload(0, nftables.TransportHeader, portAt, 2), nftables.Equal(0, big(dhcpServer)),
				nftables.Meta(0, unix.NFT_META_PROTOCOL), nftables.Equal(0, big(unix.ETH_P_IP))},
			nftables.ToNetwork(netip.PrefixFrom(to, 32)), []nftables.Expr{nftables.Accept()})...)
	}
	for _, kind := range []uint16{unix.ETH_P_PPP_DISC, unix.ETH_P_PPP_SES} {
		b.AddRule(t, chain, nftables.Meta(0, unix.NFT_META_IIFTYPE),
			nftables.Equal(0, binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)),
			nftables.Payload(0, nftables.LinkHeader, kindAt, 2), nftables.Equal(0, big(kind)), nftables.Accept())
	}
}

// RemoveFrames removes ShutFrames' table, if it exists.
func RemoveFrames(lan string) error {
	return remove(frames(lan), "giving "+lan+" back to the kernel's stack")
}

// IsShut reports whether Shut's table of a LAN exists.
func IsShut(lan string) bool {
	found, err := nftables.TableExists(forwarding(lan))
	return err == nil && found
}

// IsComplete reports whether both tables of a LAN exist.
func IsComplete(lan string) (bool, error) {
	stopped, err := nftables.TableExists(frames(lan))
	if err != nil || !stopped {
		return false, err
	}
	return nftables.TableExists(forwarding(lan))
}

func remove(t nftables.Table, doing string) error {
	if found, err := nftables.TableExists(t); err != nil || !found {
		return err
	}
	return change(doing, func(b *nftables.Batch) { b.DeleteTable(t) })
}

// Check reports whether this machine can have guards.
func Check() error {
	c, err := nftables.Dial()
	if err == nil {
		_, err = c.Generation()
		err = errors.Join(err, c.Close())
	}
	return supported(err, unix.EINVAL) // the answer of a netlink that knows no such question
}

// change commits a batch.
func change(doing string, fill func(*nftables.Batch)) error {
	c, err := nftables.Dial()
	if err == nil {
		var b nftables.Batch
		fill(&b)
		err = errors.Join(c.Commit(&b), c.Close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, supported(err))
	}
	return nil
}

// supported adds to an error that the machine has no nftables, where the error means that. more are further errors that
// mean it.
func supported(err error, more ...error) error {
	for _, no := range append(more, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT) {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: its kernel has no nftables (CONFIG_NF_TABLES with INET and NETDEV): %w",
				datapath.ErrNotSupported, err)
		}
	}
	return err
}

// Prefix begins the names of all tables.
const Prefix = "gatewayd-"

// forwarding is Shut's table, and frames is ShutFrames'.
func forwarding(lan string) nftables.Table {
	return nftables.Table{Family: nftables.Inet, Name: Table(lan)}
}
func frames(lan string) nftables.Table {
	return nftables.Table{Family: nftables.NetDev, Name: Table(lan)}
}

// Table is the name of a LAN's tables, another one for each LAN: bytes that are neither letters nor digits become _ and
// two hexadecimal digits.
func Table(lan string) string {
	name := []byte(Prefix)
	for _, b := range []byte(lan) {
		if b < '0' || b > '9' && b < 'A' || b > 'Z' && b < 'a' || b > 'z' {
			name = fmt.Appendf(name, "_%02x", b)
		} else {
			name = append(name, b)
		}
	}
	return string(name)
}
