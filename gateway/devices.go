// Devices that come in without a login.

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/device"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// devices are the parts that let devices in without a login; those that the configuration disables, or that are not
// open yet, are nil.
type devices struct {
	desk       atomic.Pointer[device.Desk]
	remembered atomic.Pointer[device.Remembered]
	file       *device.File
}

// openDevices begins to ask about devices, those too that are there already.
func (g *gateway) openDevices(context.Context) (o opened, err error) {
	cfg := g.cfg.Devices
	g.endWays()
	if !cfg.On() && !g.takesOver() {
		return o, nil
	}
	var sources []device.Source
	var runs []func(context.Context) error
	var remembered *device.Remembered
	if cfg.Remember > 0 {
		if remembered, err = g.openRemembered(); err != nil {
			return o, err
		}
		share, leave := g.shareRemembered(remembered)
		runs, o.close = append(runs, share...), func() error { leave(); return remembered.Close() }
		g.devices.remembered.Store(remembered)
		sources, runs = append(sources, rememberedGuests{remembered, g}), append(runs, remembered.Run)
	}
	if cfg.File != "" {
		g.devices.file = device.BeginFile(cfg.File, g.log)
		sources, runs = append(sources, listedDevices{g.devices.file, g.table}), append(runs, g.devices.file.Follow)
	}
	desk := device.New(device.Config{Sources: sources, Servers: g.deviceServers(), Table: limitDefaults{g.table, g, false},
		Keep: cfg.AskAgain, Log: g.log, Roaming: g.roaming()})
	g.devices.desk.Store(desk)
	if g.devices.file != nil {
		g.followDevices()
	}
	closed := o.close
	o.close = func() error {
		err := desk.Close()
		if closed != nil {
			err = errors.Join(err, closed())
		}
		return err
	}
	if g.users != nil && remembered != nil {
		g.users.OnChange(func() {
			desk.Recheck(func(_ datapath.MAC, way session.Way) bool { return way == session.Remembered })
		})
	}
	g.resumeDevices(desk)
	o.run = func(ctx context.Context) error { return runAll(ctx, append(runs, desk.Run)...) }
	return o, nil
}

// listedDevices are the devices of the file. As long as it could not be read, those that came in by it before stay.
type listedDevices struct {
	*device.File
	table interface {
		ClientsOf(datapath.MAC) []session.Session
	}
}

// errListed means that nobody knows which devices come in.
var errListed = errors.New("which devices come in is not known: see the problem of their file in gatewayd status")

// Ask implements device.Source.
func (l listedDevices) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	if !l.Known() && slices.ContainsFunc(l.table.ClientsOf(c.Key.MAC), func(s session.Session) bool {
		return s.Way == session.ByList
	}) {
		return session.Login{}, errListed
	}
	return l.File.Ask(ctx, c)
}

// endWays ends the sessions of devices whose way in the configuration has no longer.
func (g *gateway) endWays() {
	cfg := g.cfg.Devices
	has := map[session.Way]bool{"": true, session.ByMAC: cfg.RADIUS, session.ByList: cfg.File != "",
		session.Remembered: cfg.Remember > 0}
	for s := range g.table.Each {
		if s.State != session.Authenticated || has[s.Way] {
			continue
		}
		err := g.table.Kick(s.Addr, s.ID, session.AdminReset)
		if err == nil || errors.Is(err, session.ErrLater) {
			g.log.Info("a device's session ends: [devices] has its way in no longer", "client", s.Key.String(), "user", s.User,
				"way", s.Way)
		} else if !errors.Is(err, session.ErrNoSession) {
			g.log.Error("ending a device's session", "client", s.Key.String(), "err", err)
		}
	}
}

// deviceServers are the RADIUS servers that are asked about devices; nil: none.
func (g *gateway) deviceServers() device.Source {
	cfg := g.cfg.Devices
	if !cfg.RADIUS {
		return nil
	}
	return device.Servers{RADIUS: attachedServers{g}, Format: cfg.Format, VLANs: cfg.UserName == config.UserVLAN,
		Password: cfg.Password, Randomised: cfg.AskRandomised, Limit: radiusLimit(g.cfg.RADIUS)}
}

// openRemembered opens the file of remembered devices.
func (g *gateway) openRemembered() (*device.Remembered, error) {
	path := filepath.Join(g.cfg.StateDir, "remembered.db")
	store, err := device.OpenStore(path)
	if errors.Is(err, statefile.ErrDamaged) {
		if err = g.setAside(path, err, "no device is remembered"); err == nil {
			store, err = device.OpenStore(path)
		}
	}
	if err != nil {
		return nil, err
	}
	line, err := timeline.Open(g.cfg.StateDir)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	var accounts device.Accounts
	if g.users != nil {
		accounts = g.users
	}
	return device.OpenRemembered(store, accounts, g.cfg.Devices.Remember, line)
}

// shareRemembered has all gateways of a store remember the same devices, as long as what it returns runs.
func (g *gateway) shareRemembered(r *device.Remembered) (runs []func(context.Context) error, leave func()) {
	if g.store.Store == nil {
		return nil, func() {}
	}
	run, leave := r.Share(g.store.Store, perNetwork("remembered", g.cfg.Name), g.log)
	return []func(context.Context) error{run}, leave
}

// followDevices has devices that are new in the file come in at once, and the sessions of those that are gone end.
func (g *gateway) followDevices() {
	g.devices.file.OnChange(func(lists func(datapath.MAC) bool) {
		g.devices.desk.Load().Recheck(func(mac datapath.MAC, way session.Way) bool {
			return way == session.ByList || way == "" && lists(mac)
		})
	})
}

// resumeDevices tells the desk of clients that were there before it. The list and the accounts may have changed since
// their sessions began.
func (g *gateway) resumeDevices(desk *device.Desk) {
	for s := range g.table.Each {
		switch {
		case s.PPPoE.Session != 0:
		case s.State == session.Authenticated:
			desk.Resume(s)
		case !g.cfg.LAN.Repeats(s.MAC):
			desk.Seen(s.MAC)
		}
	}
	desk.Recheck(func(_ datapath.MAC, way session.Way) bool {
		return way == session.ByList || way == session.Remembered
	})
}

// seen tells that a device is there, which may come in without a login. It returns at once. A repeater's MAC address
// says nothing of who is behind it.
func (g *gateway) seen(mac datapath.MAC) {
	if g.cfg.LAN.Repeats(mac) {
		return
	}
	if desk := g.devices.desk.Load(); desk != nil {
		desk.Seen(mac)
	}
}

// sessionEnded is told of each session that has ended.
func (g *gateway) sessionEnded(s session.Session, cause session.Cause) {
	if g.vouchers != nil {
		g.vouchers.SessionEnded(s)
	}
	if g.daily != nil {
		g.daily.SessionEnded(s)
	}
	if r := g.devices.remembered.Load(); r != nil {
		g.sayNotForgotten(s, r.Ended(s, cause))
	}
	if desk := g.devices.desk.Load(); desk != nil && s.PPPoE.Session == 0 {
		desk.Ended(s, cause)
	}
}

// leaveOut keeps a device outside that somebody logs out, and forgets it before its session ends: after a crash between
// the two it is still logged in.
func (g *gateway) leaveOut(addr netip.Addr) {
	s, known := g.table.Get(addr)
	if !known || s.PPPoE.Session != 0 {
		return
	}
	if r := g.devices.remembered.Load(); r != nil {
		_, err := r.Forget(s.MAC)
		g.sayNotForgotten(s, err)
	}
	if desk := g.devices.desk.Load(); desk != nil {
		desk.Hold(s.MAC)
	}
}

func (g *gateway) sayNotForgotten(s session.Session, err error) {
	if err != nil {
		g.log.Error("a device is forgotten, and may be remembered again after a restart: has the disk of state_dir room?",
			"client", s.Key.String(), "user", s.User, "err", err)
	}
}

// remember remembers a device after a login, where the person wishes it or the configuration says so.
func (g *gateway) remember(s session.Session, login session.Login) {
	r := g.devices.remembered.Load()
	if r == nil || login.Way != "" || login.Former != (session.Former{}) || login.Voucher != "" ||
		s.PPPoE.Session != 0 || g.cfg.LAN.Repeats(s.MAC) ||
		g.cfg.Devices.Consent && !login.Remember {
		return
	}
	if login.Guest != nil { // its limits are those of the configuration and the day, at each time
		login.Limits, login.Explicit = session.Limits{}, session.ExplicitLimits{}
	}
	switch err := r.Remember(s, login); {
	case errors.Is(err, device.ErrNotRemembered):
		g.log.Info("the device is not remembered", "client", s.Key.String(), "user", s.User, "reason", err)
	case err != nil:
		g.log.Error("remembering a device: has the disk of state_dir room?", "client", s.Key.String(), "user", s.User, "err",
			err)
	default:
		g.log.Info("device remembered", "client", s.Key.String(), "user", s.User)
		g.devices.desk.Load().Renew(s.MAC)
	}
}

// showDevices adds what is known of devices to the status.
func (g *gateway) showDevices(st *control.Status) {
	desk := g.devices.desk.Load()
	if desk == nil {
		return
	}
	st.Devices = deviceCounts(desk.Stats())
	st.Listed = &control.Listed{}
	if f := g.devices.file; f != nil {
		devices, problem := f.State()
		if st.Listed.Devices = devices; problem != nil {
			st.Listed.Problem = problem.Error()
		}
	}
	if r := g.devices.remembered.Load(); r != nil {
		st.Listed.Remembered = len(r.All())
	}
}

// rememberedDevices are the devices of a gateway for the control socket.
type rememberedDevices struct{ g *gateway }

var _ control.Devices = rememberedDevices{}

// Remembered implements control.Devices.
func (d rememberedDevices) Remembered() (all []control.Device) {
	r := d.g.devices.remembered.Load()
	if r == nil {
		return nil
	}
	for _, k := range r.All() {
		all = append(all, control.Device{MAC: net.HardwareAddr(k.MAC[:]).String(), User: k.User, Since: k.Since,
			Until: k.Until})
	}
	return all
}

// Forget implements control.Devices.
func (d rememberedDevices) Forget(mac [6]byte) (found bool, err error) {
	r := d.g.devices.remembered.Load()
	if r == nil {
		return false, nil
	}
	found, err = r.Forget(mac)
	if desk := d.g.devices.desk.Load(); desk != nil {
		desk.Renew(mac)
	}
	for _, s := range d.g.table.ClientsOf(mac) {
		if s.Way == session.Remembered && err == nil {
			if err = d.g.table.Kick(s.Addr, s.ID, session.AdminReset); errors.Is(err, session.ErrLater) ||
				errors.Is(err, session.ErrNoSession) {
				err = nil
			}
		}
	}
	return found, err
}

// devices warns of keys of [devices] that make no sense together.
func (s *survey) devices() {
	if path := s.Devices.File; path != "" {
		file, err := device.OpenFile(path, slog.New(slog.DiscardHandler))
		s.find(Warning, err)
		if err == nil {
			if n, _ := file.State(); n == 0 {
				s.addFinding(Warning, "%s has no device: add a line with the MAC address of each", path)
			}
		}
	}
	if r, t := s.Devices.Remember, s.Limits.SessionTimeout; r > 0 && t > 0 && t < r {
		s.addFinding(Warning, "%s: a session that has used up its time is not given again, so that devices log in again "+
			"after limits.session_timeout, %s: set that no shorter, or do without devices.remember",
			s.LineOf("devices.remember"), t)
	}
}
