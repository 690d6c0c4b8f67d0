package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// What a keeper has of each admitted client, so that the daemon's successor goes on with its unit:
//
//	socket, channel, unit + record ──▶ keeper ──▶ adopt: same unit, counters, limits
//	digest of the rules            ──▶        ──▶ do these rules still exist, and count for these units?
//
// While there is no daemon the keeper compares clients' counters with their quotas, and the rules with the digest
// (Keep).
//
// A client is adopted only if its unit still exists. At logout the daemon ends the unit itself, also if the keeper does
// not take the message. So what a keeper has admits nobody, and the sessions' table (gateway/session) decides about
// each adopted client as about others.

// recordVersion is the version of record and rulesRecord. It changes when their meaning changes: a daemon does not read
// records of another version. The keeper's version must change as well, because a keeper of the former program would
// not attend these clients.
const recordVersion = 3

// record is the data that the keeper holds with a client's files, for the next daemon.
type record struct {
	Version int
	LAN     int // index
	Client  keptClient
	Unit    int // index of its interface
	Policed bool
	Epoch   uint64
	// Counted is the traffic of former units (client.base). Lost is what counters of the present unit had that were
	// removed together with the rules (client.lostCounts).
	Counted, Lost struct{ Up, Down nftables.Counted }
	Dropped       uint64
}

// keptClient is a client as records hold it.
type keptClient struct {
	Addr         netip.Addr
	MAC          datapath.MAC
	Session, MTU uint16
	Networks     []netip.Prefix // of IPv6; see client
	Admitted     bool
	Until        time.Time
	Limits       datapath.Limits
}

func keptOf(c *client) keptClient {
	return keptClient{c.addr, c.MAC, c.Session, c.MTU, c.networks, c.Admitted, c.Until, c.Limits}
}

func (k keptClient) client() datapath.Client {
	return datapath.Client{Addrs: []netip.Addr{k.Addr}, MAC: k.MAC, Session: k.Session, MTU: k.MTU, Routes: k.Networks,
		Admitted: k.Admitted, Until: k.Until, Limits: k.Limits}
}

// rulesKey is the key of the rules' record. The keys of clients' records are their addresses.
const rulesKey = "rules"

// rulesRecord is the data that the keeper holds about the nftables rules: digests of those that the configuration asks
// for (Meant), and of the tables that the kernel has, as ownTables has them.
type rulesRecord struct {
	Version  int
	LAN      int // index
	Meant    [32]byte
	Digests  [][32]byte
	Gateway  netip.Addr   // whose DHCP the guard lets through
	Address6 netip.Prefix // the gateway's; zero: clients have no IPv6
}

// filesKept is how many files of a client a keeper has: socket, channel, unit. The socket comes first, because the
// first one that is closed ends the traffic.
const filesKept = 3

// openKeeper finds or starts the keeper, and returns the items that it holds.
func (d *Datapath) openKeeper() []keeper.Item {
	if d.cfg.Keeper == nil {
		return nil
	}
	d.keeper = keeper.New(keeper.Config{Name: d.net.Interface, Command: d.cfg.Keeper, Refill: d.refill, Log: d.cfg.Log})
	items, err := d.keeper.Open()
	if err != nil {
		d.cfg.Log.Error("no process keeps the sessions: they end with the daemon", "lan", d.net.Interface, "err", err)
	}
	return items
}

// keepUnit has the keeper keep a client's unit as it is now. c.mu is held.
func (d *Datapath) keepUnit(c *client) {
	if d.keeper == nil || c.pppoe == nil {
		return
	}
	r := record{Version: recordVersion, LAN: d.lan.Index, Client: keptOf(c), Unit: c.pppoe.index, Policed: c.pppoe.policed,
		Epoch: c.epoch, Dropped: c.overRate}
	r.Counted.Up, r.Counted.Down = c.base.up, c.base.down
	r.Lost.Up, r.Lost.Down = c.lostCounts.fromClient, c.lostCounts.fromGateway
	item := keeper.Item{Key: c.addr.String(), Until: c.Until}
	item.Data, _ = json.Marshal(r) // an error: cannot be
	if !c.pppoe.kept {
		item.Files = []int{c.pppoe.socket, c.pppoe.channel, c.pppoe.unit}
	}
	c.pppoe.kept = true
	d.keeper.Put(item)
}

// dropKept has the keeper close a client's files. c.mu is held.
func (d *Datapath) dropKept(c *client) {
	if d.keeper != nil {
		d.keeper.Drop(c.addr.String())
	}
}

// refill gives a new keeper everything.
func (d *Datapath) refill() {
	d.replacing.RLock()
	defer d.replacing.RUnlock()
	d.keepDigest()
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			c.pppoe.kept = false
			d.keepUnit(c)
		}
		c.mu.Unlock()
	}
}

// keepDigest stores the digest of the present rules with the keeper. replacing is held.
func (d *Datapath) keepDigest() {
	if d.keeper == nil || len(d.digests) == 0 {
		return // noteRules stores it once there are rules
	}
	meant, err := d.baseRules().Digest()
	if err != nil {
		return // without it the successor makes all units anew
	}
	item := keeper.Item{Key: rulesKey}
	item.Data, _ = json.Marshal(rulesRecord{recordVersion, d.lan.Index, meant, d.digests[:len(d.ownTables())],
		d.net.Gateway(), d.net.Address6})
	d.keeper.Put(item)
}

// rulesIntact reports whether the rules are as a former daemon left them, and as this one would make them.
func (d *Datapath) rulesIntact(items []keeper.Item) bool {
	index := slices.IndexFunc(items, func(i keeper.Item) bool { return i.Key == rulesKey })
	var before rulesRecord
	if index < 0 || json.Unmarshal(items[index].Data, &before) != nil || before.Version != recordVersion ||
		before.LAN != d.lan.Index {
		return false
	}
	meant, err := d.baseRules().Digest()
	if err != nil || meant != before.Meant {
		return false
	}
	current, err := d.digestsOf(d.ownTables())
	return err == nil && slices.Equal(current, before.Digests)
}

// formerState is what a former daemon left in the kernel for its clients: PPP interfaces (units), and entries in the
// rules' sets.
type formerState struct {
	units  map[int]bool // interfaces
	tables []formerTable
}

// formerTable is what a former daemon left in one of ownTables.
type formerTable struct {
	nftables.Table
	counters map[string]bool
	keys     map[string]map[string]bool // by set
}

// findFormer reads what a former daemon left.
func (d *Datapath) findFormer() (f formerState, err error) {
	f.units = map[int]bool{}
	links, err := units(d.group)
	for _, l := range links {
		f.units[l.Attrs().Index] = true
	}
	for _, t := range d.ownTables() {
		left := formerTable{t, map[string]bool{}, map[string]map[string]bool{setFrom: {}, setOwn: {}}}
		err = errors.Join(err, d.rules.Counters(t, func(name string, _ nftables.Counted) { left.counters[name] = true }))
		for set, keys := range left.keys {
			err = errors.Join(err, d.rules.Elements(t, set, func(key, _ []byte) { keys[string(key)] = true }))
		}
		f.tables = append(f.tables, left)
	}
	return f, err
}

// has reports whether a former daemon left all that belongs to the client of a record.
func (f formerState) has(r record) bool {
	h := holdings{r.Unit, r.Client.Addr, r.Client.Networks}
	for _, t := range f.tables {
		if !t.counters[fromCounter(h.addr)] || !t.counters[ownCounter(h.addr)] ||
			!t.keys[setOwn][string(ownKey(r.Unit))] {
			return false
		}
		for _, x := range h.senders(t.Table) {
			if !t.keys[setFrom][x.Name()] {
				return false
			}
		}
	}
	return f.units[r.Unit] && len(f.tables) > 0
}

// adoptAll adopts the clients of a former daemon of whom all is left, and ends the others: the sessions' table sets
// these again, if they have not logged out. Adopted clients keep their counters; those of the others begin at 0. intact
// says that the rules are as the former daemon left them. adoptAll returns whether they can stay.
func (d *Datapath) adoptAll(items []keeper.Item, intact bool) (stay bool) {
	var left formerState
	if intact {
		var err error
		if left, err = d.findFormer(); err != nil {
			d.cfg.Log.Error("reading what the former daemon left: all sessions get new interfaces", "lan", d.net.Interface,
				"err", err)
			left, intact = formerState{}, false
		}
	}
	there, err := d.routes6()
	if err != nil {
		d.cfg.Log.Warn("reading the routes to clients: each is entered again", "lan", d.net.Interface, "err", err)
	}
	adopted, ended := 0, 0
	for _, i := range items {
		if i.Key == rulesKey {
			continue
		}
		var r record
		err := json.Unmarshal(i.Data, &r)
		if err == nil && r.Version == recordVersion && d.net.Client(r.Client.Addr) == nil && r.LAN == d.lan.Index &&
			len(i.Files) == filesKept && left.has(r) {
			if err = d.adopt(r, i.Files, there); err == nil {
				adopted++
				continue
			}
		}
		d.keeper.Drop(i.Key)
		d.discard(r, i.Files)
		if err != nil {
			d.cfg.Log.Warn("a session of the former daemon cannot be taken up as it is", "client", i.Key, "err", err)
		}
		ended++
	}
	if intact {
		if err := d.sweep(); err != nil {
			d.cfg.Log.Error("removing what is left of a former daemon's clients", "lan", d.net.Interface, "err", err)
		}
	}
	if len(items) > 0 {
		d.cfg.Log.Info("took up the sessions of a former daemon", "lan", d.net.Interface, "as they are", adopted,
			"to be set up again", ended)
	}
	return intact
}

// sweep removes entries of the rules' sets that belong to clients which were not adopted. It reads the sets again,
// because adopted clients may have ended: by their quota, or by their time.
func (d *Datapath) sweep() error {
	d.replacing.Lock()
	defer d.replacing.Unlock()
	left, err := d.findFormer()
	if err != nil {
		return err
	}
	var b nftables.Batch
	ours := map[string]bool{}
	for _, c := range d.all() {
		ours[fromCounter(c.addr)], ours[ownCounter(c.addr)] = true, true
	}
	for _, t := range left.tables {
		wanted := d.keys(t.Table)
		for set, keys := range t.keys {
			for _, key := range wanted[set] {
				delete(keys, string(key))
			}
			for key := range keys {
				b.DeleteElements(t.Table, set, elementOf(t.Table, set, key))
			}
		}
		for name := range t.counters {
			if droppedIn(t.Table)[name] == "" && !ours[name] {
				b.DeleteCounter(t.Table, name)
			}
		}
	}
	return d.rules.Commit(&b)
}

// elementOf is the element of a set that is listed as a key.
func elementOf(t nftables.Table, set, key string) nftables.Element {
	if t.Family == nftables.IPv6 && set == setFrom && len(key) == 2*keyLen6 {
		return nftables.Element{Key: []byte(key[:keyLen6]), End: []byte(key[keyLen6:])}
	}
	return nftables.Element{Key: []byte(key)}
}

// discard ends a session whose files a keeper may hold too; its interface is removed together with all others.
func (d *Datapath) discard(r record, files []int) {
	if len(files) == filesKept {
		l := &pppoeSession{key: sessionKey{r.Client.MAC, r.Client.Session}, socket: files[0], channel: files[1],
			unit: files[2], kept: true, lan: d.net.Interface}
		l.close()
		return
	}
	for _, fd := range files {
		unix.Close(fd)
	}
}

// client returns the client of a record, with files of its session or without.
func (r record) client(files ...int) *client {
	l := &pppoeSession{key: sessionKey{r.Client.MAC, r.Client.Session}, used: true, socket: -1, channel: -1, unit: -1,
		index: r.Unit, policed: r.Policed}
	if len(files) == filesKept {
		l.socket, l.channel, l.unit, l.kept = files[0], files[1], files[2], true
	}
	c := &client{addr: r.Client.Addr, Client: r.Client.client(), networks: r.Client.Networks, epoch: r.Epoch,
		known: true, pppoe: l, overRate: r.Dropped}
	c.base = tally{r.Counted.Up, r.Counted.Down}
	c.lostCounts.fromClient, c.lostCounts.fromGateway = r.Lost.Up, r.Lost.Down
	return c
}

// adopt goes on with a client's unit. After an error the caller still has the files.
func (d *Datapath) adopt(r record, files []int, there map[netip.Prefix]int) error {
	c := r.client(files...)
	l := c.pppoe
	l.lan = d.net.Interface
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.readTraffic(c); err != nil {
		return err
	}
	spent := c.usedUp(c.Limits) // while there was no daemon: bar below ends the unit
	if !spent {
		if err := errors.Join(pass6(l.unit, d.passes6(c.Client)), d.raise(c, there)); err != nil {
			return fmt.Errorf("setting up its interface: %w", err)
		}
	}
	d.mu.Lock()
	if d.carrier.sessions[l.key] != nil {
		d.mu.Unlock()
		return errors.New("another client has its PPPoE session")
	}
	err := d.carrier.watch(l.unit, l)
	if err == nil {
		if err = d.carrier.add(l); err != nil {
			d.carrier.ignore(l.unit)
		}
	}
	if err == nil {
		d.clients[c.addr] = c
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.endAtExpiry(c)
	d.bound(c)
	if spent {
		if err := d.bar(c); err != nil {
			d.cfg.Log.Error("ending a client's quota", "client", c.addr, "err", err)
		}
	}
	return nil
}

// adoptedUnits are the interfaces of clients.
func (d *Datapath) adoptedUnits() (all []int) {
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			all = append(all, c.pppoe.index)
		}
		c.mu.Unlock()
	}
	return all
}
