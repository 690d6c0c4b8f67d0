// Devices with which a person has logged in, and need not for a while.

package device

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// maxRemembered bounds the devices that are remembered: the one that ends first makes room.
const maxRemembered = 1 << 18

// Store keeps remembered devices, on a disk or elsewhere.
type Store interface {
	// Devices calls visit with each device's record, until visit fails. Records are valid during the call.
	Devices(visit func(mac datapath.MAC, record []byte) error) error
	// Write replaces the record of a device, and returns when that will outlast a crash. nil: the device is deleted; it is
	// no error that it has no record.
	Write(mac datapath.MAC, record []byte) error
	Close() error
}

// Known is a remembered device, with the login that it was remembered by. Its JSON is the record in a Store. Since and
// Until are of the time line there and in memory, and of the wall clock in what All returns.
type Known struct {
	MAC    datapath.MAC           `json:"-"`
	User   string                 `json:"user"`
	Since  time.Time              `json:"since"`
	Until  time.Time              `json:"until"`
	Class  [][]byte               `json:"class,omitempty"`
	Limits session.Limits         `json:"limits"`
	Given  session.ExplicitLimits `json:"given"`
	// Sessions and Shared are those of the login.
	Sessions int  `json:"sessions,omitempty"`
	Shared   bool `json:"shared,omitempty"`
	// Local means that a local account accepted the login; Mark is then that of its password.
	Local bool   `json:"local,omitempty"`
	Mark  string `json:"mark,omitempty"`
	// Guest is the login's.
	Guest *session.Guest `json:"guest,omitempty"`

	// Of devices that gateways remember together: when it was remembered or forgotten last, by the store's clock; whether
	// it is forgotten, and until when that is kept.
	Changed   time.Time `json:"changed,omitzero"`
	Forgotten bool      `json:"forgotten,omitempty"`
	Kept      time.Time `json:"kept,omitzero"`
}

// Accounts are local accounts.
type Accounts interface {
	// Recall returns the login of an account without its password, and the password's mark.
	Recall(user string) (login session.Login, mark string, known bool)
}

// Line is the time line of the state folder: a timeline.Line. Setting the wall clock does not change it.
type Line interface {
	At(wall time.Time) time.Time
	Time(instant time.Time) time.Time
}

// Remembered are the devices that are remembered. Its methods may be called at any time from several goroutines.
type Remembered struct {
	store    Store
	accounts Accounts // nil: there are none
	period   time.Duration
	line     Line

	shared *sharing // nil: this gateway's are its own

	mu        sync.Mutex // guards what follows
	devices   map[datapath.MAC]Known
	forgotten map[datapath.MAC]Known // of which other gateways may not know yet

	writing [64]sync.Mutex // by MAC address: records are written in the order of what is in memory
}

// OpenRemembered reads the devices of a store, which Close closes. They are remembered for a period of a line.
func OpenRemembered(store Store, accounts Accounts, period time.Duration, line Line) (*Remembered, error) {
	r := &Remembered{store: store, accounts: accounts, period: period, line: line, devices: map[datapath.MAC]Known{},
		forgotten: map[datapath.MAC]Known{}}
	err := store.Devices(func(mac datapath.MAC, record []byte) error {
		k, err := decodeKnown(mac, record)
		r.keep(k)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return r, nil
}

func decodeKnown(mac datapath.MAC, record []byte) (k Known, err error) {
	if err = json.Unmarshal(record, &k); err != nil {
		return k, fmt.Errorf("device %s: %w: %w", net.HardwareAddr(mac[:]), ErrDamaged, err)
	}
	k.MAC = mac
	return k, nil
}

// Close closes the store.
func (r *Remembered) Close() error { return r.store.Close() }

// ErrNotRemembered means that a login cannot be given again without its source: it has a quota, or no time is left.
var ErrNotRemembered = errors.New("a login with a quota that a server counts is not remembered")

// Remember remembers a device by the login of a session, and returns when that will outlast a crash. A server's time
// limit ends it: without the server a device has no more time than the login had.
func (r *Remembered) Remember(s session.Session, login session.Login) error {
	now := r.now()
	k := Known{MAC: s.MAC, User: s.User, Since: now, Until: now.Add(r.period), Class: login.Class, Limits: login.Limits,
		Given: login.Explicit, Sessions: login.Sessions, Shared: login.Shared, Local: login.Local,
		Guest: login.Guest}
	l := login.Limits
	switch {
	case login.Local:
		if r.accounts == nil {
			return nil
		}
		_, k.Mark, _ = r.accounts.Recall(login.User)
		k.User = login.User
	case l.UpBytes+l.DownBytes+l.TotalBytes > 0:
		return ErrNotRemembered
	case l.SessionTimeout > 0:
		if end := r.line.At(s.Began).Add(l.SessionTimeout); end.Before(k.Until) {
			k.Until = end
		}
	}
	return r.write(k.MAC, &k)
}

// now is the present time of the line.
func (r *Remembered) now() time.Time { return r.line.At(time.Now()) }

// keep puts a device into memory. mu is held, or nobody else has the devices yet.
func (r *Remembered) keep(k Known) {
	delete(r.devices, k.MAC)
	delete(r.forgotten, k.MAC)
	if k.Forgotten {
		r.forgotten[k.MAC] = k
	} else {
		r.devices[k.MAC] = k
	}
}

// turn is held while a device's record is written.
func (r *Remembered) turn(mac datapath.MAC) *sync.Mutex {
	return &r.writing[mac[5]%byte(len(r.writing))]
}

// stamp notes when a device was changed, where gateways have it together: k, or that it is forgotten if k is nil. It
// returns what is to be written; nil: the record is deleted.
func (r *Remembered) stamp(mac datapath.MAC, k *Known) *Known {
	if r.shared == nil {
		return k
	}
	now := r.now()
	r.mu.Lock()
	was, known := r.devices[mac]
	gone := r.forgotten[mac]
	r.mu.Unlock()
	if k == nil {
		if !known || !now.Before(was.Until) {
			return nil
		}
		k = &Known{MAC: mac, Forgotten: true, Kept: was.Until}
	}
	k.Changed = later(now.Add(r.shared.shift()), later(was.Changed, gone.Changed).Add(time.Nanosecond)).UTC()
	return k
}

// write replaces a device's record, or deletes it if k is nil.
func (r *Remembered) write(mac datapath.MAC, k *Known) error {
	turn := r.turn(mac)
	turn.Lock()
	defer turn.Unlock()
	var record []byte
	k = r.stamp(mac, k)
	if k != nil {
		var err error
		if record, err = json.Marshal(k); err != nil {
			return fmt.Errorf("encoding a remembered device: %w", err)
		}
		if err := r.makeRoom(mac); err != nil {
			return err
		}
	}
	if k == nil || k.Forgotten { // before the disk: a device that is forgotten must not come in meanwhile
		r.mu.Lock()
		delete(r.devices, mac)
		delete(r.forgotten, mac)
		r.mu.Unlock()
	}
	if err := r.store.Write(mac, record); err != nil {
		return fmt.Errorf("keeping which devices are remembered: %w", err)
	}
	if k != nil {
		r.mu.Lock()
		r.keep(*k)
		r.mu.Unlock()
	}
	if r.shared != nil {
		r.shared.tell(mac)
	}
	return nil
}

// makeRoom forgets the device that ends first, where there are too many for another one.
func (r *Remembered) makeRoom(mac datapath.MAC) error {
	r.mu.Lock()
	_, known := r.devices[mac]
	if known || len(r.devices) < maxRemembered {
		r.mu.Unlock()
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Values(r.devices)),
		func(a, b Known) int { return a.Until.Compare(b.Until) })
	delete(r.devices, first.MAC)
	r.mu.Unlock()
	return r.store.Write(first.MAC, nil)
}

// Ask implements Source. A device whose account is gone, or has another password by now, is forgotten.
func (r *Remembered) Ask(_ context.Context, c session.Credentials) (session.Login, error) {
	r.mu.Lock()
	k, found := r.devices[c.Key.MAC]
	r.mu.Unlock()
	if !found {
		return session.Login{}, session.ErrRejected
	}
	login := session.Login{User: k.User, Class: k.Class, Limits: k.Limits, Explicit: k.Given, Sessions: k.Sessions,
		Shared: k.Shared, Guest: k.Guest}
	left := k.Until.Sub(r.now())
	valid := left > 0
	if login.Limits.SessionTimeout > 0 { // a server's, of which a part is used up
		login.Limits.SessionTimeout = min(login.Limits.SessionTimeout, left)
	}
	if k.Local && valid {
		var mark string
		valid = r.accounts != nil
		if valid {
			login, mark, valid = r.accounts.Recall(k.User)
			valid = valid && mark == k.Mark
		}
	}
	if !valid && r.shared != nil && left > 0 { // another gateway may have the account
		return session.Login{}, session.ErrRejected
	}
	if !valid {
		if err := r.write(k.MAC, nil); err != nil {
			return session.Login{}, err
		}
		return session.Login{}, session.ErrRejected
	}
	login.Way = session.Remembered
	return login, nil
}

// Forget forgets a device, and reports whether it was remembered. After an error it is forgotten until the daemon ends.
func (r *Remembered) Forget(mac datapath.MAC) (bool, error) {
	r.mu.Lock()
	_, found := r.devices[mac]
	r.mu.Unlock()
	if !found {
		return false, nil
	}
	return true, r.write(mac, nil)
}

// Ended tells that a session has ended. One that ended because its time or bytes were used up, or because somebody
// ended it, is not given again: the device is forgotten, if it is remembered for this user.
func (r *Remembered) Ended(s session.Session, cause session.Cause) error {
	switch cause {
	case session.SessionTimeout, session.Quota, session.AdminReset:
	default:
		return nil
	}
	r.mu.Lock()
	k, found := r.devices[s.MAC]
	r.mu.Unlock()
	if !found || !session.SameUser(k.User, s.User) {
		return nil
	}
	_, err := r.Forget(s.MAC)
	return err
}

// All returns the devices, by MAC address, without those that are remembered no longer.
func (r *Remembered) All() []Known {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Values(r.devices))
	all = slices.DeleteFunc(all, func(k Known) bool { return !now.Before(k.Until) })
	for i := range all {
		all[i].Since, all[i].Until = r.line.Time(all[i].Since).Round(0), r.line.Time(all[i].Until).Round(0)
	}
	slices.SortFunc(all, func(a, b Known) int { return cmp.Compare(string(a.MAC[:]), string(b.MAC[:])) })
	return all
}

// tidyEvery is how often records are removed that have no effect any more.
const tidyEvery = time.Hour

// Run removes records of devices that are remembered no longer, until ctx ends.
func (r *Remembered) Run(ctx context.Context) error {
	for {
		r.tidy()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tidyEvery):
		}
	}
}

func (r *Remembered) tidy() {
	now := r.now()
	r.mu.Lock()
	var over []datapath.MAC
	for mac, k := range r.devices {
		if !now.Before(k.Until) {
			over = append(over, mac)
		}
	}
	for mac, k := range r.forgotten {
		if !now.Before(k.Kept) {
			over = append(over, mac)
		}
	}
	r.mu.Unlock()
	for _, mac := range over {
		if err := r.write(mac, nil); err != nil {
			return // the disk is full, for example: tried again
		}
	}
}
