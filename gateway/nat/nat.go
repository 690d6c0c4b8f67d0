// Package nat translates clients' addresses by its own nftables table.
//
//	client ──▶ prerouting: forwards ──▶ routing ──▶ postrouting: hairpin, exceptions, sources ──▶ WAN
//
// These rules see the first packet of each connection. The kernel's connection tracking translates all other packets,
// even while no daemon runs. A forward sends connections to a port of this machine on to a client. A hairpin is such a
// connection that another client opened. Sources are the outside addresses that clients get.
//
// Other rules see every packet. They drop packets that would leave by the WAN untranslated, which happens when
// connection tracking knows no connection to which they belong. They drop packets that come by the WAN for a client's
// own address although no client asked for them. With sources, they drop packets for an outside address that nobody
// uses. Where outside addresses move between machines, they drop segments of TCP that belong to no connection here.
//
// From Linux 6.9 on the table is held: no other program can change it while the daemon lives, and "flush ruleset"
// leaves it alone. On older kernels the daemon puts it back when it was removed.
package nat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/gateway/shared"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Config describes the translation.
type Config struct {
	LAN, WAN string       // interfaces: the one by which the kernel sends to clients, and the one towards the world
	Name     string       // of the table, apart from others' (see Table)
	Network  netip.Prefix // the clients'
	// Sources are the addresses that clients have outside, in this order; none: the WAN's.
	Sources []Range
	// Ports is the number of outside ports that each of Clients has for itself (Assignment); clients that are not listed
	// then reach nothing outside. 0: all clients share all ports.
	Ports      int
	Clients    []Range // in ascending order
	Hairpin    bool    // clients reach Forwards by outside addresses
	Exceptions []netip.Prefix
	Inbound    []netip.Prefix // networks behind the WAN that may open connections to clients' own addresses
	Forwards   []Forward
	// Moves is set where another machine may have had the outside addresses, and its connections: segments of TCP that
	// belong to no connection here are dropped instead of reset.
	Moves bool
	Log   *slog.Logger

	unheld bool // for tests: the table is not held, as on kernels before 6.9
}

// Range is the addresses from First to Last.
type Range struct{ First, Last netip.Addr }

// Forward sends connections to ports of this machine's addresses outside of the LAN on to a client.
type Forward struct {
	Protocol    uint8 // IPPROTO_TCP or IPPROTO_UDP
	First, Last uint16
	To          netip.Addr
	Port        uint16 // the client's port; 0: the same as the one outside
}

// NAT is the nftables table of a translation, kept in place until Close.
type NAT struct {
	cfg            Config
	conn           *nftables.Conn
	follower       *stack.Follower
	tableHeld      bool // by conn: see nftables.Batch
	wanted         contents
	digest         [sha256.Size]byte // of the chains and rules as the kernel has them; guarded by mu
	goodGeneration uint32            // of all tables when this one was last found right; guarded by mu
	restored       atomic.Uint64

	mu         sync.Mutex
	isDetached bool   // the data path was detached: nothing is put back
	whyNot     string // see Trouble
}

// Table returns the name of the table for a LAN's interface, in nftables' family ip.
func Table(lan string) string { return prefix + strings.TrimPrefix(guard.Table(lan), guard.Prefix) }

// prefix begins the names of all tables of this package. No table of package guard begins so, because their names have
// no hyphen after the first.
const prefix = guard.Prefix + "nat-"

// IsOwnTable reports whether a table of nftables translates a gateway's clients.
func IsOwnTable(family uint8, table string) bool {
	return family == uint8(nftables.IPv4) && strings.HasPrefix(table, prefix)
}

func tableOf(name string) nftables.Table { return nftables.Table{Family: nftables.IPv4, Name: name} }

// Open puts the table in place. It replaces the table of a former daemon in one step, so that connections continue. It
// fails with datapath.ErrNotSupported where the kernel lacks a part of nftables.
func Open(cfg Config) (*NAT, error) {
	n := &NAT{cfg: cfg}
	var err error
	if n.conn, err = nftables.Dial(); err != nil {
		return nil, err
	}
	if n.follower, err = stack.Follow(); err != nil {
		return nil, errors.Join(err, n.conn.Close())
	}
	for _, n.tableHeld = range []bool{!cfg.unheld, false} {
		if err = n.apply(); err == nil {
			return n, nil
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf(
			"%w: %w (nftables with NAT, masquerade, fib and conntrack are needed)", datapath.ErrNotSupported, err)
	}
	return nil, errors.Join(fmt.Errorf("address translation: %w", err), n.Close())
}

// noteAttempts is how often apply tries while other programs change nftables' tables.
const noteAttempts = 5

// apply replaces the table and reads its digest from the kernel. If another program changed tables in between, apply
// tries again, because that change may be in the digest.
func (n *NAT) apply() error {
	b := &nftables.Batch{Held: n.tableHeld}
	n.wanted = n.cfg.ruleset(b)
	for range noteAttempts {
		before, err := n.conn.Generation()
		if err == nil {
			err = n.conn.Commit(b)
		}
		if err == nil {
			n.digest, err = n.conn.Digest(tableOf(n.cfg.Name))
		}
		if err != nil {
			return err
		}
		if after, err := n.conn.Generation(); err != nil || after == before+1 {
			return err
		}
	}
	return nil
}

// Close leaves the table in the kernel, so that connections go on.
func (n *NAT) Close() error { return errors.Join(n.follower.Close(), n.conn.Close()) }

// Restored returns how often the table was put back.
func (n *NAT) Restored() uint64 { return n.restored.Load() }

// Trouble returns why the rules are not as they should be; "" where they are.
func (n *NAT) Trouble() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whyNot
}

// recheckEvery is the time between two checks of the table without a message of the kernel about a change.
const recheckEvery = 2 * time.Second

// Run restores the table when other programs remove it, or change its chains, rules or maps, until ctx ends. gone tells
// whether the data path was detached: then it removes the table.
func (n *NAT) Run(ctx context.Context, gone func() bool) error {
	port, err := n.conn.Port()
	if err != nil {
		return err
	}
	look := func() { n.keepTable(gone) }
	if err := n.follower.Run(stack.Changes{Routing: func() {}, Rules: look, OwnPort: port,
		Ignored: n.isOther}); err != nil {
		return err
	}
	look() // for changes from before the follower ran
	tick := ticker.Every(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			look()
		}
	}
}

// isOther reports whether a table is the guard or the translation of another LAN, or has no rules.
func (n *NAT) isOther(family uint8, table string) bool {
	if shared.IsOwnTable(family, table) || guard.CountsConnections(family, table) {
		return true
	}
	if IsOwnTable(family, table) {
		return table != n.cfg.Name
	}
	return family == uint8(nftables.Inet) && guard.IsOwnTable(table) &&
		table != guard.Prefix+strings.TrimPrefix(n.cfg.Name, prefix)
}

// keepTable checks the table and puts it back where it was changed. Where the data path was detached it removes the
// table.
func (n *NAT) keepTable(gone func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDetached {
		return
	}
	if gone() {
		if err := n.conn.Remove(tableOf(n.cfg.Name)); err != nil {
			n.cfg.Log.Error("removing address translation", "err", err)
			return
		}
		n.isDetached, n.whyNot = true, ""
		return
	}
	found, err := n.isInPlace()
	if err == nil && found {
		n.whyNot = ""
		return
	}
	if err == nil {
		if err = n.apply(); err == nil {
			n.restored.Add(1)
			n.whyNot = ""
			n.cfg.Log.Warn("the rules of address translation were changed or removed by others, and are as they were: "+
				"connections of the time in between may be broken; use \"nft destroy table\" on your own tables instead of \"nft "+
				"flush ruleset\"", "table", n.cfg.Name)
			return
		}
	}
	if reason := err.Error(); n.whyNot != reason {
		n.whyNot = reason
		n.cfg.Log.Error(
			"the rules of address translation are not as they should be, and cannot be put back: trying every two seconds",
			"table", n.cfg.Name, "err", err)
	}
}

// isInPlace reports whether the table in the kernel has exactly the chains, rules and map elements that it should have.
// mu is held.
func (n *NAT) isInPlace() (bool, error) {
	generation, err := n.conn.Generation()
	if err != nil || generation == n.goodGeneration {
		return err == nil, err
	}
	current, err := n.conn.Digest(tableOf(n.cfg.Name))
	if err != nil || current != n.digest {
		return false, err
	}
	for name, want := range n.wanted {
		var current digest
		err := n.conn.Elements(tableOf(n.cfg.Name), name, current.add)
		if errors.Is(err, unix.ENOENT) || err == nil && current != want {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	n.goodGeneration = generation
	return true, nil
}

// LeftInKernel reports whether a table exists. A kernel without nftables has none.
func LeftInKernel(name string) bool {
	found, err := nftables.TableExists(tableOf(name))
	return err == nil && found
}

// Remove removes a table, as nftables.RemoveTable does.
func Remove(name string) error {
	return nftables.RemoveTable(tableOf(name), "address translation (table ip "+name+")")
}
