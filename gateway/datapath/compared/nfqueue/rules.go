package nfqueue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Marks of packets whose verdict is more than accept or drop. These packets traverse the rules again, which act on the
// mark. The numbers are arbitrary and unlikely to be used by others.
const (
	markPortal = 0x6a770003 // to the portal
	markReject = 0x6a770004 // answer with a reset, or with ICMP "administratively prohibited"
	// markKnown tells the judge that the rules have matched the sender's MAC address: see judge.sender.
	markKnown = 0x6a770005
	// markMet is on packets of newcomers of whom the gateway has been notified.
	markMet = 0x6a770006
)

// Priorities of base chains. Packets are judged before connections are tracked, so that a dropped packet leaves no
// entry.
const (
	priorityRaw      = -300
	priorityTracking = -200
	priorityMangle   = -150
	priorityNAT      = -100 - 1 // before others'
)

// tables are the tables of one LAN, the same in every run.
type tables struct{ ip, arp, ip6, dev nftables.Table }

// namePrefix begins the names of all tables of all LANs.
const namePrefix = "gatewayd_"

func tablesOf(lan string) tables {
	name := namePrefix + lan
	return tables{
		ip:  nftables.Table{Family: nftables.IPv4, Name: name},
		arp: nftables.Table{Family: nftables.ARP, Name: name},
		ip6: nftables.Table{Family: nftables.IPv6, Name: name},
		dev: nftables.Table{Family: nftables.NetDev, Name: name},
	}
}

// Counters of what rules drop themselves: ARP and IPv6, and ARP beyond budgets.
const (
	dropped   = "dropped"
	throttled = "throttled"
)

// Sets of the tables.
const (
	setKnown  = "known"  // address and MAC of each client
	setTaken  = "taken"  // ARP: addresses of clients
	setProbes = "probes" // ARP: the limit of each MAC address that asks whether an address is free
	setAsking = "asking" // ARP: the limit of each client
)

// dialect is what this kernel's nftables supports.
type dialect struct {
	canHoldTables bool                                // tables can be held: see nftables.Batch
	dev           bool                                // rules at devices are supported for these interfaces
	queueExpr     func(nftables.Queues) nftables.Expr // the supported expression for queueing
}

// install replaces all rules in one step, without clients.
func (d *Datapath) install() error {
	var err error
	for _, held := range []bool{!d.cfg.unheld, false} {
		for _, dev := range []bool{d.fast != nil && len(d.wan.HardwareAddr) == macSize, false} {
			for _, ask := range []func(nftables.Queues) nftables.Expr{nftables.Queue, nftables.QueueTarget} {
				d.speaks = dialect{held, dev, ask}
				if err = d.rules.Commit(d.ruleset()); err == nil {
					return nil
				}
			}
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf(
			"%w: %w (nftables with reject, limit, NAT and queue or NFQUEUE are needed)", datapath.ErrNotSupported, err)
	}
	return err
}

// ruleset returns all rules, without clients.
func (d *Datapath) ruleset() *nftables.Batch {
	b, t := &nftables.Batch{Held: d.speaks.canHoldTables}, tablesOf(d.net.Interface)
	if d.speaks.dev {
		b.DeleteTable(t.dev)
	}
	for _, table := range []nftables.Table{t.ip, t.arp, t.ip6} {
		b.DeleteTable(table)
		b.AddTable(table)
	}
	if d.speaks.dev {
		b.AddTable(t.dev)
		d.redirectRules(b, t.dev)
	}
	d.ipRules(b, t.ip, d.speaks.queueExpr(d.span()))
	d.arpRules(b, t.arp)
	d.ip6Rules(b, t.ip6)
	return b
}

// notFrom and notTo continue with packets of interfaces other than the LAN. They compare the name, so that an interface
// that was created again does not bypass the rules.
func (d *Datapath) notFrom() []nftables.Expr { return d.otherLink(unix.NFT_META_IIFNAME) }
func (d *Datapath) notTo() []nftables.Expr   { return d.otherLink(unix.NFT_META_OIFNAME) }

func (d *Datapath) otherLink(key uint32) []nftables.Expr {
	return []nftables.Expr{nftables.Meta(0, key), nftables.Differs(0, nftables.Name(d.net.Interface))}
}

func marked(mark uint32) []nftables.Expr {
	return []nftables.Expr{
		nftables.Meta(0, unix.NFT_META_MARK), nftables.Equal(0, binary.NativeEndian.AppendUint32(nil, mark))}
}

// ipRules creates the chains that both modes use, followed by the mode's own rules.
func (d *Datapath) ipRules(b *nftables.Batch, t nftables.Table, ask nftables.Expr) {
	b.AddChain(t, "ask", nil)
	b.AddRule(t, "ask", ask)
	b.AddRule(t, "ask", nftables.Drop())
	b.AddChain(t, "reject", nil)
	b.AddRule(t, "reject", nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
		nftables.Reset())
	b.AddRule(t, "reject", nftables.Prohibited())
	if d.fast != nil {
		d.fastRules(b, t)
	} else {
		d.studiedRules(b, t)
	}
}

// Offsets of header fields, and their sizes, bytes.
const (
	sender, receiver, addressSize = 12, 16, 4
	senderMAC, macSize            = 6, 6
	senderPort, receiverPort      = 0, 2
	portSize                      = 2
)

// loadPair loads the sender's address and MAC in the format of pair.
func loadPair(to nftables.Register) []nftables.Expr {
	return []nftables.Expr{
		nftables.Payload(to, nftables.NetworkHeader, sender, addressSize),
		nftables.Payload(to+1, nftables.LinkHeader, senderMAC, macSize),
	}
}

func port(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// arpRules keep clients from using other clients' addresses in ARP, and devices without an address out of the stack's
// neighbour table.
func (d *Datapath) arpRules(b *nftables.Batch, t nftables.Table) {
	b.AddCounter(t, dropped)
	d.knownSet(b, t)
	b.AddSet(t, nftables.Set{Name: setTaken, KeyType: nftables.TypeIPv4, KeyBytes: 4, Size: d.size()})

	b.AddCounter(t, throttled)
	limits := nftables.Set{KeyType: nftables.TypeEthernet, KeyBytes: macSize, Timeouts: true, Dynamic: true}
	limits.Name, limits.Size = setProbes, datapath.MostSenders
	b.AddSet(t, limits)
	limits.Name, limits.Size = setAsking, d.size()
	b.AddSet(t, limits)

	const (
		in         = 0 // NF_ARP_IN
		operation  = 6 // 1: a request
		claimedMAC = 8 // by the message; the frame's may be another
		sender     = 14
	)
	load := nftables.Payload(0, nftables.NetworkHeader, sender, addressSize)
	frames := nftables.Payload(1, nftables.LinkHeader, senderMAC, macSize)
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: in})
	b.AddRule(t, "input", append(d.notFrom(), nftables.Accept())...)
	b.AddChain(t, "of_client", nil)
	b.AddRule(t, "of_client", nftables.Payload(0, nftables.NetworkHeader, operation, 2), nftables.Differs(0, []byte{0, 1}),
		nftables.Accept())
	b.AddRule(t, "of_client", frames, limit(setAsking, 1, datapath.Budgets[datapath.Question]), nftables.Accept())
	b.AddRule(t, "of_client", nftables.Count(throttled), nftables.Drop())
	// A probe for a free address.
	b.AddRule(t, "input", load, nftables.Equal(0, []byte{0, 0, 0, 0}), frames, limit(setProbes, 1, datapath.Senders),
		nftables.Accept())
	b.AddRule(t, "input", load, nftables.Equal(0, []byte{0, 0, 0, 0}), nftables.Count(throttled), nftables.Drop())
	b.AddRule(t, "input", load, frames, nftables.InSet(setKnown, 0),
		nftables.Payload(1, nftables.NetworkHeader, claimedMAC, macSize), nftables.InSet(setKnown, 0),
		nftables.Goto("of_client"))
	if d.cfg.Newcomer != nil { // dropped, but no forgery: see reportNewcomers
		mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-d.net.Address.Bits()))
		b.AddRule(t, "input", load, nftables.Differs(0, d.net.Gateway().AsSlice()), nftables.NotIn(setTaken, 0),
			nftables.And(0, mask), nftables.Equal(0, d.net.Prefix().Addr().AsSlice()), nftables.Drop())
	}
	b.AddRule(t, "input", nftables.Count(dropped), nftables.Drop())
}

// limit continues within the budget of a key. A key that is forgotten has a full bucket again.
func limit(set string, key nftables.Register, r budget.Rate) nftables.Expr {
	return nftables.Limit(set, key, uint64(r.EachSecond), uint32(r.AtOnce), time.Duration(r.BucketSize()))
}

func (d *Datapath) knownSet(b *nftables.Batch, t nftables.Table) {
	b.AddSet(t, nftables.Set{
		Name: setKnown, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet), KeyBytes: 12, Size: d.size()})
}

// size is the number of addresses in the LAN.
func (d *Datapath) size() uint32 { return d.net.Size() }

// indexKey returns an interface as a key of sets.
func indexKey(dev *net.Interface) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(dev.Index))
}

// ip6Rules drop IPv6, for which there is no admission.
func (d *Datapath) ip6Rules(b *nftables.Batch, t nftables.Table) {
	b.AddCounter(t, dropped)
	b.AddChain(t, "prerouting", &nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityRaw})
	b.AddRule(t, "prerouting", append(d.notFrom(), nftables.Accept())...)
	b.AddRule(t, "prerouting", nftables.Count(dropped), nftables.Drop())
}

// pair returns an address and its owner as a key of sets.
func pair(addr netip.Addr, mac datapath.MAC) []byte {
	return append(append(addr.AsSlice(), mac[:]...), 0, 0)
}

// Clear removes the rules of a LAN from the kernel, which then forwards for everybody unless another data path has
// closed the LAN, and with them the clients' neighbour entries. The LAN must be locked, because Clear does not check
// whether a data path runs. Without rules it leaves everything as it is: the entries may be another data path's.
func Clear(lan string) error {
	left := Left(lan)
	c, err := nftables.Dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // without nftables there are no rules
	}
	if err != nil {
		return err
	}
	t := tablesOf(lan)
	var errs []error
	for _, tables := range [][]nftables.Table{{t.dev}, {t.ip, t.arp, t.ip6}} {
		for _, held := range []bool{true, false} {
			b := &nftables.Batch{Held: held}
			for _, table := range tables {
				b.DeleteTable(table)
			}
			if err = c.Commit(b); err == nil {
				break
			}
		}
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (a gateway that runs holds its tables: end it first)", err)
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, err)
		}
	}
	if left {
		errs = append(errs, neighbour.Remove(lan))
	}
	return errors.Join(append(errs, c.Close())...)
}

// Left reports whether rules of a LAN exist.
func Left(lan string) bool {
	c, err := nftables.Dial()
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Counter(tablesOf(lan).arp, dropped)
	return err == nil
}
