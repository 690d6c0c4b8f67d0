package gateway

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
)

// leaseKind is the kind of the records of leases in the store.
const leaseKind = "leases"

// importEvery is how often a standby writes the leases that it was told of to its own file.
const importEvery = 2 * time.Second

// leaseFeed is what a standby was told of the other gateway's leases, and has not in its file. The life's mu guards it.
type leaseFeed struct {
	copies map[netip.Addr]cluster.Record
	last   time.Time // when they were written
}

// leaseFollower hears of the leases of the site.
type leaseFollower struct{ l *pairLife }

var _ cluster.Follower = leaseFollower{}

// Put implements cluster.Follower.
func (f leaseFollower) Put(gateway, key string, r cluster.Record) {
	addr, err := netip.ParseAddr(key)
	if err != nil || gateway != f.l.cfg.Pair.Site || f.l.serves.Load() {
		return
	}
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.l.leases.copies[addr] = r
}

// Gone implements cluster.Follower: leases end by their time.
func (f leaseFollower) Gone(string, string) {}

// Synced implements cluster.Follower.
func (f leaseFollower) Synced(bool) {}

// importSoon writes leases to the file, but not all the time.
func (l *pairLife) importSoon() {
	if time.Since(l.leases.last) < importEvery {
		return
	}
	l.leases.last = time.Now()
	l.copying.Lock()
	defer l.copying.Unlock()
	if l.serves.Load() { // the DHCP server has the file
		return
	}
	if err := l.importLeases(); err != nil {
		l.trouble.Do(func() { l.log.Warn("the other gateway's leases", "err", err) })
	}
}

// importLeases writes the leases that are not in the file yet.
func (l *pairLife) importLeases() error {
	if l.cfg.DHCP.Mode != config.Server {
		return nil
	}
	l.mu.Lock()
	told := l.leases.copies
	l.leases.copies = map[netip.Addr]cluster.Record{}
	l.mu.Unlock()
	records := map[netip.Addr]dhcp.Copy{}
	for addr, r := range told {
		// The lines of leases and sessions are that of state_dir.
		if shift, known := l.g.store.Shift(sessionKind(""), r.Owner); known {
			records[addr] = dhcp.Copy{Record: r.Content, Shift: shift}
		} else {
			l.keepLease(addr, r)
		}
	}
	if len(records) == 0 {
		return nil
	}
	err := dhcp.Import(filepath.Join(l.cfg.StateDir, "leases.db"), records)
	if err != nil {
		for addr := range records {
			l.keepLease(addr, told[addr])
		}
	}
	return err
}

// keepLease has a lease written later, unless a newer record of it waits.
func (l *pairLife) keepLease(addr netip.Addr, r cluster.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, newer := l.leases.copies[addr]; !newer {
		l.leases.copies[addr] = r
	}
}

// leased tells the store of a lease.
func (l *pairLife) leased(addr string, record []byte) {
	l.g.store.Mirror(leaseKind).Changed(addr, record)
}

// shareLeases has the set of the site have the leases of the DHCP server, until the server is closed.
func (l *pairLife) shareLeases() (closed func() error) {
	copies := l.g.store.Mirror(leaseKind)
	copies.Read(l.g.dhcp.Records)
	return func() error { copies.Read(nil); return l.g.dhcp.Close() }
}
