// Package admission judges the packets of data paths in user space: which clients may send and receive what, and what
// counts for them. It knows clients, limits and the walled garden; its callers receive and send the packets.
//
//	Set, Remove, Open ──▶ Table ◀── Judge.JudgeUp, JudgeDown, JudgeAcross, ARP ◀── a thread's packets
//	Counters, Packets ◀──
//
// The rules and the names of packets' outcomes are those of the programs in gateway/datapath/ebpf. Judges take no lock
// and allocate nothing, except for DHCP, ARP, newcomers, and packets of unauthenticated clients within their address's
// budget: these are counted by MAC address in tables with a lock, and take the garden's read lock.
package admission

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Config is the configuration of a Table.
type Config struct {
	Network datapath.Network
	// PortalPorts are the portal's TCP ports on the gateway's address, at most 4; none: HTTP of
	// unauthenticated clients is rejected.
	PortalPorts []uint16
	PPPoE       bool // clients may be on PPPoE
	// Behind are the networks behind clients, by these' addresses; nil: there are none.
	Behind *datapath.ClientNetworks[netip.Addr]
	// Newcomer is called for clients with an address that was not leased, by up to datapath.ParallelNewcomers goroutines
	// at once; nil: their packets are dropped silently.
	Newcomer func(netip.Addr, datapath.MAC)
}

// Table holds the data path's clients. All methods may be called at any time from several goroutines.
type Table struct {
	cfg       Config
	base      uint32 // first address of the LAN
	gateway   uint32
	entries   []entry // by the address's position in the LAN
	garden    garden
	ports     gardenPorts
	strangers *strangers
	ownAddrs  atomic.Pointer[map[uint32]bool] // see SetOwn; nil: not set yet
	epoch     uint64
	marks     []uint64 // each address's packets at the last call of Moved

	newcomers chan newcomer
	reporting sync.WaitGroup

	mu     sync.Mutex // guards the following fields, and all writes to entries except counters
	judges []*Judge
	closed bool
}

// newcomer is the sender of a packet without a lease, which waits to be reported to the gateway.
type newcomer struct {
	addr netip.Addr
	mac  datapath.MAC
	done func() // called after Newcomer has returned; may be nil
}

// waiting bounds the newcomers that wait for a call of Newcomer; further ones are reported with their next packets.
const waiting = 256

// New creates a table without clients. Its counters begin at 0, so its epoch is new.
func New(cfg Config) (*Table, error) {
	if err := cfg.Network.Check(); err != nil {
		return nil, err
	}
	if len(cfg.Network.Outside) > 0 {
		return nil, fmt.Errorf("%w: clients with addresses outside the LAN", datapath.ErrNotSupported)
	}
	if len(cfg.PortalPorts) > 4 {
		return nil, fmt.Errorf("%d portal ports: at most 4", len(cfg.PortalPorts))
	}
	t := &Table{
		cfg: cfg, base: addrNumber(cfg.Network.Prefix().Addr()), gateway: addrNumber(cfg.Network.Gateway()),
		entries: make([]entry, cfg.Network.Size()), strangers: newStrangers(int(cfg.Network.Size())),
	}
	for t.epoch == 0 {
		var b [8]byte
		rand.Read(b[:])
		t.epoch = binary.NativeEndian.Uint64(b[:])
	}
	if cfg.Newcomer != nil {
		t.newcomers = make(chan newcomer, waiting)
		for range datapath.ParallelNewcomers {
			t.reporting.Go(func() {
				for n := range t.newcomers {
					cfg.Newcomer(n.addr, n.mac)
					if n.done != nil {
						n.done()
					}
				}
			})
		}
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
	t.reporting.Wait()
	return nil
}

// Judge returns one thread's access to the table. Each judge has its own counters, so that threads do not contend for
// them.
func (t *Table) Judge() *Judge {
	j := &Judge{table: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judges = append(t.judges, j)
	return j
}

// Packets counts packets by outcome. It never fails, like Total and Clients; other data paths ask the kernel for these.
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

// ReportNewcomer has Config.Newcomer called for the sender of a packet with the verdict Unknown, and then calls then,
// unless it is nil. It returns false, without any call, when too many newcomers wait, or the sender's MAC address was
// reported too often.
func (t *Table) ReportNewcomer(addr netip.Addr, mac datapath.MAC, then func()) bool {
	if !t.strangers.fresh.Spend(macOf(mac), false, Now()) {
		return false
	}
	select {
	case t.newcomers <- newcomer{addr, mac, then}:
		return true
	default:
		return false
	}
}

// Report reports the sender of an IPv4 packet with the verdict Unknown (ReportNewcomer), and counts the packet as
// dropped.
func (j *Judge) Report(mac datapath.MAC, ip []byte) {
	j.table.ReportNewcomer(netip.AddrFrom4([4]byte(ip[12:16])), mac, nil)
	j.counts[NotLeased].Add(1)
}

// clockOrigin is time 0 of Now.
var clockOrigin = time.Now().Add(-time.Second)

// Now is the judges' clock: nanoseconds that pass with CLOCK_MONOTONIC, never 0. One reading is exact enough for a
// batch of packets.
func Now() int64 { return int64(time.Since(clockOrigin)) }

// judgeTime converts a wall clock time to the judges' clock, never 0.
func judgeTime(t time.Time) int64 { return max(1, Now()+int64(time.Until(t))) }

// wall converts a time of the judges' clock to wall clock time.
func wall(ns int64) time.Time { return time.Now().Add(time.Duration(ns - Now())) }

func addrNumber(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// Reason is the outcome of a packet.
type Reason uint8

// The reasons. Data paths count outcomes of their own with Judge.Count.
const (
	Forwarded Reason = iota
	ForGateway
	Garden        // to or from the walled garden, before login
	ToPortal      // HTTP before login, handed to the portal
	Rejected      // before login: answered with RST or ICMP
	Blocked       // before login: dropped without an answer
	NotLeased     // from or to an address of the LAN that is not leased
	WrongMAC      // from a leased address, by another MAC
	ForeignSource // from the LAN with a source outside it, or the reverse
	RogueDHCP     // a DHCP server's reply from the LAN
	ARPSpoof      // ARP for an address that its sender does not have
	IPv6
	BeyondRate
	BeyondQuota
	Malformed
	Overflow  // admitted, but the next queue was full
	Throttled // beyond what a client may ask before login, or a DHCP client at all
	reasonCount
)

var reasonNames = [reasonCount]string{
	Forwarded: "forwarded", ForGateway: "local", Garden: "garden", ToPortal: "portal", Rejected: "rejected",
	Blocked:   "blocked",
	NotLeased: "not-leased", WrongMAC: "wrong-mac", ForeignSource: "foreign-source", RogueDHCP: "rogue-dhcp",
	ARPSpoof: "arp-spoof",
	IPv6:     "ipv6", BeyondRate: "rate", BeyondQuota: "quota", Malformed: "malformed", Overflow: "overflow",
	Throttled: "throttled",
}

// String returns the reason's name in the packet counters.
func (r Reason) String() string { return reasonNames[r] }
