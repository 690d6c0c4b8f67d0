package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// What is kept of a network: bytes and clients by hour and by day of the machine's time zone.
const (
	usageName   = "usage.json"
	keptHours   = 14 * 24
	keptDays    = 400
	maxUsage    = 128 // networks, former ones too
	sampleEvery = time.Minute
	saveEvery   = 5 * time.Minute
)

// Slot is the usage of an hour or a day.
type Slot struct {
	Begin     time.Time `json:"begin"`
	UpBytes   uint64    `json:"up_bytes"`
	DownBytes uint64    `json:"down_bytes"`
	Clients   int       `json:"clients"` // logged in, the most at once
}

// networkUsage is the usage of a network, in the order of time.
type networkUsage struct {
	Hours []Slot `json:"hours"`
	Days  []Slot `json:"days"`
	// the counters that were read last: the data path goes on counting while the daemon is away
	Up   uint64 `json:"up"`
	Down uint64 `json:"down"`
}

// usage is the usage of all networks. Its methods may be called from several goroutines.
type usage struct {
	path string

	mu       sync.Mutex
	networks map[string]*networkUsage // guarded by mu: by name; "": there is one
	saved    time.Time                // guarded by mu
	dns      map[string][]dnsCount    // guarded by mu: of each network in the last minutes, the oldest first

	saving sync.Mutex // held while the file is written
}

// openUsage reads the usage in a folder. A damaged file is set aside.
func openUsage(dir string, log *slog.Logger) (*usage, error) {
	u := &usage{path: filepath.Join(dir, usageName), networks: map[string]*networkUsage{},
		dns: map[string][]dnsCount{}}
	text, err := os.ReadFile(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the usage: %w", err)
	}
	if err := json.Unmarshal(text, &u.networks); err != nil || u.networks == nil {
		movedTo, failed := statefile.SetAside(u.path)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		log.Error("the file of usage is damaged and was set aside: usage begins anew", "file", u.path, "now", movedTo, "err",
			err)
		u.networks = map[string]*networkUsage{}
	}
	maps.DeleteFunc(u.networks, func(_ string, n *networkUsage) bool { return n == nil })
	return u, nil
}

// add adds what networks have forwarded since the last time.
func (u *usage) add(now time.Time, status control.Status) error {
	all := status.Networks
	if len(all) == 0 {
		all = []control.Status{status}
	}
	u.mu.Lock()
	clients := 0
	for _, n := range all {
		u.addNetwork(now, n)
		u.addDNS(now, n)
		clients += loggedIn(n)
	}
	if len(status.Networks) > 0 {
		u.addTogether(now, clients)
	}
	due := now.Sub(u.saved).Abs() >= saveEvery
	u.mu.Unlock()
	if due {
		return u.save()
	}
	return nil
}

// addNetwork adds what a network has forwarded. mu is held.
func (u *usage) addNetwork(now time.Time, status control.Status) {
	n := u.networks[status.Network]
	up, down := status.Traffic.UpBytes, status.Traffic.DownBytes
	if up == 0 && down == 0 {
		return // nothing was forwarded yet, or the network is not served now, and will count on
	}
	if n == nil {
		if len(u.networks) >= maxUsage {
			return
		}
		n = &networkUsage{Up: up, Down: down} // what was before belongs to no known hour
		u.networks[status.Network] = n
	}
	n.add(now, Slot{UpBytes: grown(n.Up, up), DownBytes: grown(n.Down, down), Clients: loggedIn(status)})
	n.Up, n.Down = up, down
}

// loggedIn is how many clients of a network are logged in.
func loggedIn(status control.Status) int {
	return status.Sessions[control.States[len(control.States)-1]]
}

// add adds to the hour and the day of a time.
func (n *networkUsage) add(now time.Time, slot Slot) {
	year, month, day := now.Date()
	slot.Begin = now.Truncate(time.Hour)
	n.Hours = addSlot(n.Hours, slot, keptHours, now)
	slot.Begin = time.Date(year, month, day, 0, 0, 0, 0, now.Location())
	n.Days = addSlot(n.Days, slot, keptDays, now)
}

// together is what has the clients of all networks at once; it is no network's name. Its bytes are 0.
const together = "*"

// addTogether adds how many clients of all networks are logged in. mu is held.
func (u *usage) addTogether(now time.Time, clients int) {
	n := u.networks[together]
	if n == nil {
		n = &networkUsage{}
		u.networks[together] = n
	}
	n.add(now, Slot{Clients: clients})
}

// dnsCount is what a network's DNS had been asked until a time, and what had failed.
type dnsCount struct {
	at            time.Time
	asked, failed uint64
}

// dnsLately is how far back dnsSince looks.
const dnsLately = 10 * time.Minute

// addDNS remembers the counters of a network's DNS. mu is held.
func (u *usage) addDNS(now time.Time, status control.Status) {
	if status.DNS == nil {
		return
	}
	all := append(u.dns[status.Network], dnsCount{now, status.DNS["query"], status.DNS["failed"]})
	u.dns[status.Network] = all[max(0, len(all)-int(dnsLately/sampleEvery)-1):]
}

// dnsSince returns what a network's DNS was asked in the last minutes, and what failed: since its start where that is
// later.
func (u *usage) dnsSince(status control.Status) (asked, failed uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	asked, failed = status.DNS["query"], status.DNS["failed"]
	if all := u.dns[status.Network]; len(all) > int(dnsLately/sampleEvery) {
		asked, failed = grown(all[0].asked, asked), grown(all[0].failed, failed)
	}
	return asked, failed
}

// grown is by how much a counter has grown; one that is smaller began anew.
func grown(last, now uint64) uint64 {
	if now < last {
		return now
	}
	return now - last
}

// addSlot adds to the slot of a time, of which most are kept. Slots of the future, from when the clock was wrong, go.
func addSlot(all []Slot, s Slot, most int, now time.Time) []Slot {
	all = slices.DeleteFunc(all, func(o Slot) bool { return o.Begin.After(now) })
	i, found := slices.BinarySearchFunc(all, s.Begin, func(o Slot, at time.Time) int { return o.Begin.Compare(at) })
	if found {
		o := &all[i]
		o.UpBytes, o.DownBytes, o.Clients = o.UpBytes+s.UpBytes, o.DownBytes+s.DownBytes, max(o.Clients, s.Clients)
		return all
	}
	all = slices.Insert(all, i, s)
	return all[max(0, len(all)-most):]
}

// save writes the usage, whole or not at all.
func (u *usage) save() error {
	u.saving.Lock()
	defer u.saving.Unlock()
	u.mu.Lock()
	text, err := json.Marshal(u.networks)
	u.saved = time.Now()
	u.mu.Unlock()
	if err != nil {
		return err
	}
	return statefile.Replace(u.path, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// of returns the usage of a network; with all, of all networks together.
func (u *usage) of(network string, all bool) (hours, days []Slot) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h, d := map[int64]Slot{}, map[int64]Slot{}
	for name, n := range u.networks {
		if !all && name != network || name == together {
			continue
		}
		for _, part := range []struct {
			from []Slot
			to   map[int64]Slot
		}{{n.Hours, h}, {n.Days, d}} {
			for _, s := range part.from {
				o := part.to[s.Begin.Unix()]
				part.to[s.Begin.Unix()] = Slot{s.Begin, o.UpBytes + s.UpBytes, o.DownBytes + s.DownBytes, o.Clients + s.Clients}
			}
		}
	}
	if n := u.networks[together]; all && n != nil { // else, from before it was counted, what there was at most
		setClients(h, n.Hours)
		setClients(d, n.Days)
	}
	return inOrder(h), inOrder(d)
}

// setClients replaces the sum of networks' most clients, which were not online at one time, by the most of all.
func setClients(all map[int64]Slot, counted []Slot) {
	for _, s := range counted {
		if o, found := all[s.Begin.Unix()]; found {
			o.Clients = s.Clients
			all[s.Begin.Unix()] = o
		}
	}
}

func inOrder(all map[int64]Slot) []Slot {
	return slices.SortedFunc(maps.Values(all), func(a, b Slot) int { return a.Begin.Compare(b.Begin) })
}
