// Package neighbour enters the clients of a LAN into the kernel's neighbour table, with the MAC addresses to which they
// are bound.
//
// Entries that the kernel makes itself, by ARP and neighbour discovery, are limited:
// net.ipv4.neigh.default.gc_thresh3, 1024 unless set, is the number of them in all network namespaces of a machine
// together (net.ipv6 has its own), and what does not fit is not sent and not answered. Permanent entries are exempt
// from that limit and from garbage collection (since Linux 5.0), and no packet changes them. They stay when the daemon
// ends; the next one takes them over, and Remove removes them. Static entries of others stay as they are.
package neighbour

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// Table keeps static entries for the clients of one interface in the kernel's neighbour table. Its methods may be
// called at any time from several goroutines. It logs entries that the kernel refuses; ARP then serves that client,
// within the kernel's limit.
type Table struct {
	index int // of the interface
	log   *slog.Logger

	sending       sync.Mutex // held while messages are sent; locked before mu; guards what follows
	conn          *conn
	logged        budget.OncePerMinute    // allows the log one message about refused entries a minute
	refused       int                     // entries that the kernel has refused since the start
	foreignStatic map[netip.Addr]struct{} // clients with a static entry that is not gatewayd's
	loggedAddrs   map[netip.Addr]struct{} // addresses whose foreign entry was logged

	mu      sync.Mutex // guards what follows
	clients map[netip.Addr]datapath.MAC
	changed map[netip.Addr]struct{} // addresses whose changes were not sent to the kernel yet
}

// Open gives an interface the entries of clients. Of a former daemon's entries, right ones stay as they are, and others
// are removed.
func Open(index int, clients map[netip.Addr]datapath.MAC, log *slog.Logger) (*Table, error) {
	c, err := dial()
	if err != nil {
		return nil, fmt.Errorf("entering neighbours: %w", err)
	}
	t := &Table{index: index, log: log, conn: c, clients: maps.Clone(clients), changed: map[netip.Addr]struct{}{},
		foreignStatic: map[netip.Addr]struct{}{}, loggedAddrs: map[netip.Addr]struct{}{}}
	if t.clients == nil {
		t.clients = map[netip.Addr]datapath.MAC{}
	}
	if err := t.compare(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close leaves the entries in the kernel.
func (t *Table) Close() error {
	t.sending.Lock()
	defer t.sending.Unlock()
	err := t.conn.close()
	t.conn = nil
	return err
}

// Set notes a client for the next Flush.
func (t *Table) Set(addr netip.Addr, mac datapath.MAC) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, present := t.clients[addr]; !present || before != mac {
		t.clients[addr] = mac
		t.changed[addr] = struct{}{}
	}
}

// Remove notes that an address has no client any more.
func (t *Table) Remove(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, present := t.clients[addr]; present {
		delete(t.clients, addr)
		t.changed[addr] = struct{}{}
	}
}

// Has reports whether an address is a client's with this MAC address.
func (t *Table) Has(addr netip.Addr, mac datapath.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, present := t.clients[addr]
	return present && before == mac
}

// Flush sends all changes that were noted before the call to the kernel. The changes of callers that wait for each
// other go into one system call, so that many leases at once cost little each.
func (t *Table) Flush() {
	t.sending.Lock()
	defer t.sending.Unlock()
	t.flush()
}

// flush is Flush with sending held.
func (t *Table) flush() {
	for list := t.nextEntries(); len(list) > 0 && t.conn != nil; list = t.nextEntries() {
		t.send(list)
	}
}

// nextEntries returns the next changes to send, at most as many as fit into one message.
func (t *Table) nextEntries() (list []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr := range t.changed {
		if len(list) == atOnce {
			break
		}
		mac, present := t.clients[addr]
		list = append(list, entry{addr: addr, mac: mac, remove: !present})
		delete(t.changed, addr)
	}
	return list
}

// send changes entries in the kernel. sending is held.
func (t *Table) send(list []entry) {
	list = slices.DeleteFunc(list, func(e entry) bool {
		_, excluded := t.foreignStatic[e.addr]
		delete(t.foreignStatic, e.addr) // judged again, if it is a client's
		return excluded && e.remove
	})
	if len(list) == 0 {
		return
	}
	entries, bad, err := t.conn.setEntries(t.index, list)
	if over := t.replaceable(entries); len(over) > 0 {
		_, bad2, err2 := t.conn.setEntries(t.index, over)
		bad, err = bad+bad2, errors.Join(err, err2)
	}
	if err == nil {
		return
	}
	t.refused += bad
	t.logged.Do(func() {
		t.log.Warn("clients are not in the kernel's neighbour table, and are limited to those that ARP finds room for "+
			"(net.ipv4.neigh.default.gc_thresh3)", "refused", t.refused, "err", err)
	})
}

// replaceable returns the entries that gatewayd may replace in the kernel's table, and logs the others: a static entry
// was made on purpose. sending is held.
func (t *Table) replaceable(entries []entry) (over []entry) {
	for _, e := range entries {
		f, err := get(t.index, e.addr)
		if err != nil || !f.static || f.isGatewayd {
			e.replace = true
			over = append(over, e)
			continue
		}
		t.foreignStatic[e.addr] = struct{}{}
		if _, logged := t.loggedAddrs[e.addr]; !logged && f.mac != e.mac {
			t.loggedAddrs[e.addr] = struct{}{}
			t.log.Warn("a client's address has a static neighbour entry with another MAC address, which stays: the client "+
				"gets no packets (remove the entry: ip neigh del ADDRESS dev LAN)",
				"client", e.addr, "mac", net.HardwareAddr(e.mac[:]).String(), "entry", net.HardwareAddr(f.mac[:]).String())
		}
	}
	return over
}

// Check enters the clients again if the kernel has removed their entries: it removes all entries of an interface when
// the interface goes down, loses its last address or changes its MAC address. Call Check when a link or an address has
// changed. If nothing was removed it is cheap: the kernel removes all entries of a family together, so Check looks at
// one entry of each.
func (t *Table) Check() {
	t.sending.Lock()
	defer t.sending.Unlock()
	if t.conn == nil {
		return
	}
	t.flush()
	var err error
	for _, one := range t.oneOfEach() {
		var f found
		if f, err = get(t.index, one); err == nil && !f.isGatewayd {
			err = t.compare()
		}
		if err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // others report an interface that is gone
		t.log.Error("comparing the kernel's neighbour table with the clients", "err", err)
	}
}

// oneOfEach returns, for each family, the address of any client whose entry gatewayd made. sending is held.
func (t *Table) oneOfEach() (addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, is4 := range []bool{true, false} {
		for addr := range t.clients {
			if _, excluded := t.foreignStatic[addr]; !excluded && addr.Is4() == is4 {
				addrs = append(addrs, addr)
				break
			}
		}
	}
	return addrs
}

// compare reads gatewayd's entries from the kernel, and changes them where they differ from the clients. sending is
// held, or nobody else has the table yet.
func (t *Table) compare() error {
	have, err := list(t.index)
	if err != nil {
		return err
	}
	t.mu.Lock()
	for addr, mac := range have {
		if before, present := t.clients[addr]; !present || before != mac {
			t.changed[addr] = struct{}{}
		}
	}
	for addr := range t.clients {
		if _, present := have[addr]; !present {
			t.changed[addr] = struct{}{}
		}
	}
	t.mu.Unlock()
	t.flush()
	return nil
}
