// Package admission judges the packets of a data path in user space: who may
// send and receive what, and what it is billed. It knows clients, limits and the
// walled garden; how packets come and go is its callers' affair.
//
//	Set, Remove, Open ──▶ Table ◀── Judge.Up, Judge.Down, Judge.ARP ◀── a thread's packets
//	Counters, Packets ◀──
//
// The rules and the words for what became of a packet are those of the programs
// in gateway/datapath/ebpf. Judges take no lock and allocate nothing, except that
// strangers' packets take the garden's read lock while it holds anything.
package admission

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Config is what a table is made for.
type Config struct {
	Prefix  netip.Prefix // the LAN's network, /14 or longer
	Gateway netip.Addr   // the gateway's address in it
	// PortalPorts are the portal's TCP ports on Gateway, at most 4; none: HTTP of
	// strangers is rejected.
	PortalPorts []uint16
	// Newcomer is called, one call at a time, for clients nobody leased an address
	// to; nil: their packets are dropped without a word.
	Newcomer func(netip.Addr, datapath.MAC)
}

// Table is what the data path knows of its clients. All methods may be called at
// any time from several goroutines.
type Table struct {
	cfg     Config
	base    uint32 // first address of the LAN
	gateway uint32
	entries []entry // by the address's place in the LAN
	garden  garden
	epoch   uint64

	newcomers chan newcomer
	greeting  sync.WaitGroup

	mu     sync.Mutex // guards what follows, and all writing of entries but for counters
	judges []*Judge
	closed bool
}

type newcomer struct {
	addr netip.Addr
	mac  datapath.MAC
	then func() // called when Newcomer has returned; may be nil
}

// waiting bounds the newcomers nobody has been told of yet; further ones are told
// of with their next packets.
const waiting = 256

// New makes a table without clients. Its counters begin at 0, so its epoch is new.
func New(cfg Config) (*Table, error) {
	switch {
	case !cfg.Prefix.IsValid() || !cfg.Prefix.Addr().Is4() || cfg.Prefix.Bits() < datapath.LargestLAN:
		return nil, fmt.Errorf("the LAN must be an IPv4 network of /%d or longer, not %s", datapath.LargestLAN, cfg.Prefix)
	case !cfg.Prefix.Contains(cfg.Gateway):
		return nil, fmt.Errorf("the gateway's address %s is not in its LAN %s", cfg.Gateway, cfg.Prefix)
	case len(cfg.PortalPorts) > 4:
		return nil, fmt.Errorf("%d portal ports: at most 4", len(cfg.PortalPorts))
	}
	cfg.Prefix = cfg.Prefix.Masked()
	t := &Table{
		cfg: cfg, base: number(cfg.Prefix.Addr()), gateway: number(cfg.Gateway),
		entries: make([]entry, 1<<(32-cfg.Prefix.Bits())),
	}
	for t.epoch == 0 {
		var b [8]byte
		rand.Read(b[:])
		t.epoch = binary.NativeEndian.Uint64(b[:])
	}
	if cfg.Newcomer != nil {
		t.newcomers = make(chan newcomer, waiting)
		t.greeting.Go(func() {
			for n := range t.newcomers {
				cfg.Newcomer(n.addr, n.mac)
				if n.then != nil {
					n.then()
				}
			}
		})
	}
	return t, nil
}

// Close waits for the last call of Newcomer. No judge may be used afterwards.
func (t *Table) Close() error {
	t.mu.Lock()
	if !t.closed && t.newcomers != nil {
		close(t.newcomers)
	}
	t.closed = true
	t.mu.Unlock()
	t.greeting.Wait()
	return nil
}

// Judge is one thread's access to the table: what it counts is its own, so that
// threads do not wait for each other's counters.
func (t *Table) Judge() *Judge {
	j := &Judge{table: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judges = append(t.judges, j)
	return j
}

// Packets counts packets by what became of them. It never fails; nor do Total and
// Clients, which other data paths ask the kernel for.
func (t *Table) Packets() (map[string]uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]uint64, len(reasonNames))
	for reason, name := range reasonNames {
		for _, j := range t.judges {
			out[name] += j.counts[reason].Load()
		}
	}
	return out, nil
}

// Greet has Newcomer called for the sender of an Unknown packet, and once that has
// returned what is given, unless it is nil. It is false, and nothing is called, where
// too many wait for that already.
func (t *Table) Greet(addr netip.Addr, mac datapath.MAC, then func()) bool {
	select {
	case t.newcomers <- newcomer{addr, mac, then}:
		return true
	default:
		return false
	}
}

// began is the moment 0 of Now.
var began = time.Now().Add(-time.Second)

// Now is the clock of judges: nanoseconds that pass with CLOCK_MONOTONIC, never 0.
// Reading it once for a batch of packets is exact enough for them all.
func Now() int64 { return int64(time.Since(began)) }

// moment is a wall clock time on the clock of judges, never 0.
func moment(t time.Time) int64 { return max(1, Now()+int64(time.Until(t))) }

// wall is a moment of the judges' clock.
func wall(ns int64) time.Time { return time.Now().Add(time.Duration(ns - Now())) }

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// Reason is what became of a packet.
type Reason uint8

// The reasons; a data path counts those it meets itself by Judge.Count.
const (
	Forwarded Reason = iota
	ForGateway
	Garden        // to or from the walled garden, before login
	ToPortal      // HTTP before login, given to the portal
	Rejected      // before login: answered with RST or ICMP
	Blocked       // before login: dropped without an answer
	NotLeased     // from or to an address of the LAN nobody leased
	WrongMAC      // from a leased address, by another MAC
	ForeignSource // from the LAN with a source outside it, or the reverse
	RogueDHCP     // a DHCP server's reply from the LAN
	ARPSpoof      // ARP for an address its sender did not lease
	IPv6
	BeyondRate
	BeyondQuota
	Malformed
	Overflow // admitted, but the next queue was full
	reasonCount
)

var reasonNames = [reasonCount]string{
	Forwarded: "forwarded", ForGateway: "local", Garden: "garden", ToPortal: "portal", Rejected: "rejected", Blocked: "blocked",
	NotLeased: "not-leased", WrongMAC: "wrong-mac", ForeignSource: "foreign-source", RogueDHCP: "rogue-dhcp", ARPSpoof: "arp-spoof",
	IPv6: "ipv6", BeyondRate: "rate", BeyondQuota: "quota", Malformed: "malformed", Overflow: "overflow",
}

// String is the reason's word in the counters of packets.
func (r Reason) String() string { return reasonNames[r] }
