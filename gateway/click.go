// Clients that come in by a click: their rooms, and so much a day.

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/daily"
	"github.com/gateweigh/gateweigh/gateway/device"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// roomUsers begins the users of guests' sessions: "room:204". A name in a users' file has no colon.
const roomUsers = session.RoomUsers

// clickConfig is what the portal asks of clients that come in by a click.
func (g *gateway) clickConfig() portal.Click {
	c := g.cfg.Click
	out := portal.Click{Box: c.Terms == config.TermsBox}
	for _, field := range c.Ask {
		out.Ask = append(out.Ask, portal.Ask{Field: field, Required: !slices.Contains(c.Optional, field)})
	}
	if c.Rooms != "" && slices.Contains(c.Ask, config.AskRoom) {
		out.Room = func(room, lastName string) (user, number string, err error) {
			_, err = g.hasRoom(room, lastName)
			number = rooms.Fold(room)
			return roomUsers + number, number, err
		}
	}
	if c.Daily() {
		out.Today = g.today
	}
	return out
}

// errRooms means that nobody knows who has which room.
var errRooms = errors.New("who has which room is not known: see the problem of the file of rooms in gatewayd status")

// hasRoom returns until when a guest has a room; zero: without an end. The error wraps session.ErrRejected where they
// do not have it, and is errRooms where no list could be read yet.
func (g *gateway) hasRoom(room, lastName string) (until time.Time, err error) {
	list, known := g.rooms.List()
	until, has := list.Until(room, lastName, time.Now())
	switch {
	case !known:
		return until, errRooms
	case !has:
		return until, session.Reject("")
	}
	return until, nil
}

// today is what is left of the day of a client and a room.
func (g *gateway) today(key session.Key, room string) (portal.Today, error) {
	l, err := g.daily.Left(daily.DeviceOf(key.MAC), roomHolder(room))
	return portal.Today{Timed: l.Timed, Counted: l.Counted, Time: l.Time, Bytes: l.Bytes, Used: l.Used, UsedUp: l.Over(),
		Again: l.Again}, err
}

// roomHolder is the holder of a room's day, by its number; "": none.
func roomHolder(room string) daily.Holder {
	if room == "" {
		return ""
	}
	return daily.RoomOf(room)
}

// guestLogin is the login of a client that comes in by a click, before anything is known of it.
func (g *gateway) guestLogin() session.Login {
	login := session.Login{}
	for _, p := range g.cfg.Profiles {
		if p.Name == g.cfg.Click.Profile && p.Name != "" {
			login.Limits, login.Sessions = limitsOf(p), p.SessionsPerUser
		}
	}
	return login
}

// openDaily opens what devices and rooms used today, where the configuration limits that, or has done so.
func (g *gateway) openDaily(context.Context) (o opened, err error) {
	c := g.cfg.Click
	if !c.Daily() || !g.cfg.Portal.Enabled { // sessions may have limits of a day of before, which end
		if _, err := os.Stat(filepath.Join(g.cfg.StateDir, daily.FileName)); err != nil {
			return o, nil
		}
	}
	terms := daily.Terms{Clock: daily.Clock{Begins: c.DayBegins, Zone: time.Local},
		Device: daily.Amount{Time: c.DailyTime, Bytes: c.DailyData},
		Room:   daily.Amount{Time: c.RoomDailyTime, Bytes: c.RoomDailyData}}
	g.daily, err = daily.Open(g.cfg.StateDir, g.cfg.Name, terms, g.log)
	if errors.Is(err, statefile.ErrDamaged) {
		path := filepath.Join(g.cfg.StateDir, daily.FileName)
		if err = g.setAside(path, err, "devices and rooms have all of the day again"); err == nil {
			g.daily, err = daily.Open(g.cfg.StateDir, g.cfg.Name, terms, g.log)
		}
	}
	if err != nil {
		return o, err
	}
	leave := func() {}
	if g.store.Store != nil {
		leave = g.daily.Share(g.store.Store, perNetwork("day", g.cfg.Name))
	}
	return opened{run: g.daily.Run, close: func() error { leave(); return g.daily.Close() }}, nil
}

// serveDaily has the day look after this network's sessions.
func (g *gateway) serveDaily(context.Context) (o opened, err error) {
	if g.daily == nil {
		return o, nil
	}
	o.close = func() error { g.daily.Leave(); return nil }
	return o, g.daily.Serve(g.table, func(s session.Session) (of, room daily.Holder) {
		if s.Guest == nil {
			return "", ""
		}
		return daily.DeviceOf(s.MAC), roomHolder(s.Guest.Room)
	})
}

// takeDay limits the session of a client that comes in by a click to what is left of the day, and to the time for which
// the guest has the room. giveBack undoes it. The login has all of its other limits.
func (g *gateway) takeDay(login *session.Login, key session.Key) (giveBack func(), err error) {
	giveBack = func() {}
	if login.Guest == nil {
		return giveBack, nil
	}
	if room := login.Guest.Room; room != "" && g.rooms != nil {
		until, err := g.hasRoom(room, login.Guest.LastName)
		if err != nil {
			return nil, err
		}
		if left := max(time.Until(until), time.Nanosecond); !until.IsZero() &&
			(login.Limits.SessionTimeout == 0 || left < login.Limits.SessionTimeout) {
			login.Limits.SessionTimeout = left
		}
	}
	if g.daily == nil {
		return giveBack, nil
	}
	if login.SessionID == "" {
		login.SessionID = session.NewID()
	}
	if err := g.daily.Begin(login, key, daily.DeviceOf(key.MAC), roomHolder(login.Guest.Room)); err != nil {
		return nil, err
	}
	taken := *login
	return func() {
		if err := g.daily.Undo(taken); err != nil {
			g.log.Error("a session that did not begin counts until the next start", "user", taken.User, "err", err)
		}
	}, nil
}

// shareDay tells the other sessions of a room that one more has begun.
func (g *gateway) shareDay(s session.Session) {
	if g.daily == nil || s.Guest == nil {
		return
	}
	if err := g.daily.Began(session.Login{SessionID: s.ID}); err != nil {
		g.log.Warn("the other sessions of a room may go on for too long", "user", s.User, "err", err)
	}
}

// said is what a guest said and accepted, for the log.
func said(guest *session.Guest) (attrs []any) {
	if guest == nil {
		return nil
	}
	for _, a := range [][2]string{{"terms", guest.Terms}, {"room", guest.Room}, {"last_name", guest.LastName},
		{"name", guest.Name}, {"email", guest.Email}} {
		if a[1] != "" {
			attrs = append(attrs, a[0], a[1])
		}
	}
	return attrs
}

// openRooms follows the file of rooms. One with a mistake, or none, does not keep the gateway from starting.
func (g *gateway) openRooms(context.Context) (o opened, err error) {
	path := g.cfg.Click.Rooms
	if path == "" || !g.cfg.Portal.Enabled {
		return o, nil
	}
	g.rooms = rooms.Begin(path, time.Local, g.log)
	o.run = func(ctx context.Context) error { return runAll(ctx, g.rooms.Follow, g.endLeft) }
	return o, nil
}

// leftEvery is how often sessions of guests that have left are looked for. One ends that is found twice: a file that is
// being written may lack lines for a moment.
const leftEvery = 5 * time.Second

// endLeft ends the sessions of guests whose room is theirs no longer, until ctx ends.
func (g *gateway) endLeft(ctx context.Context) error {
	look := ticker.Every(leftEvery)
	defer look.Stop()
	var before map[string]bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		before = g.endLeftOf(before)
	}
}

// endLeftOf ends the sessions of guests that have left and had left before, and returns all that have left.
func (g *gateway) endLeftOf(before map[string]bool) map[string]bool {
	list, known := g.rooms.List()
	if !known {
		return nil
	}
	left, now := map[string]bool{}, time.Now()
	var over []session.Session
	for s := range g.table.Each {
		if s.Guest == nil || s.Guest.Room == "" {
			continue
		}
		if _, has := list.Until(s.Guest.Room, s.Guest.LastName, now); !has {
			left[s.ID] = true
			if before[s.ID] {
				over = append(over, s)
			}
		}
	}
	for _, s := range over {
		err := g.table.Kick(s.Addr, s.ID, session.SessionTimeout) // their time is up, and no operator has done anything
		if err == nil || errors.Is(err, session.ErrLater) {
			g.log.Info("a guest's session ends: the room is theirs no longer", "client", s.Key.String(), "user", s.User,
				"session", s.ID)
		} else if !errors.Is(err, session.ErrNoSession) {
			g.log.Error("ending a guest's session", "client", s.Key.String(), "err", err)
		}
	}
	return left
}

// rememberedGuests are the remembered devices. Those of guests come in as long as they would by a click, with the
// limits of the configuration and what is left of the day.
type rememberedGuests struct {
	*device.Remembered
	g *gateway
}

// Ask implements device.Source.
func (r rememberedGuests) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	login, err := r.Remembered.Ask(ctx, c)
	if err != nil || login.Guest == nil {
		return login, err
	}
	given := r.g.guestLogin()
	login.Limits, login.Sessions = given.Limits, given.Sessions
	switch err := r.g.stillGuest(login.Guest); {
	case errors.Is(err, session.ErrRejected):
		_, failed := r.Forget(c.Key.MAC)
		return session.Login{}, errors.Join(err, failed)
	case err != nil:
		return session.Login{}, err
	}
	return login, nil
}

// stillGuest returns nil if a guest would come in by a click now too: there is the method, and they have the room,
// where they said one or rooms are asked for. The errors are those of hasRoom.
func (g *gateway) stillGuest(guest *session.Guest) error {
	c := g.cfg.Click
	asked := slices.Contains(c.Ask, config.AskRoom) && !slices.Contains(c.Optional, config.AskRoom)
	switch {
	case !g.cfg.Auth.Has(config.MethodClickThrough), guest.Room == "" && asked, guest.Room != "" && g.rooms == nil:
		return session.Reject("")
	case guest.Room == "":
		return nil
	}
	_, err := g.hasRoom(guest.Room, guest.LastName)
	return err
}

// showRooms adds the file of rooms to the status.
func (g *gateway) showRooms(st *control.Status) {
	if g.rooms == nil {
		return
	}
	guests, problem := g.rooms.State()
	st.Rooms = &control.Rooms{Guests: guests}
	if problem != nil {
		st.Rooms.Problem = problem.Error()
	}
}

// clickThrough reads the file of rooms, and warns of what makes no sense with it.
func (s *survey) clickThrough() {
	c := s.Click
	if c.Rooms == "" || !slices.Contains(c.Ask, config.AskRoom) { // a network may ask for less than the others
		return
	}
	file, err := rooms.Open(c.Rooms, time.Local, slog.New(slog.DiscardHandler))
	s.find(Warning, err)
	if err != nil {
		return
	}
	guests, _ := file.State()
	if guests == 0 {
		s.addFinding(Warning, "%s has no room: add a line for each guest, such as 204; García; 2026-12-03", c.Rooms)
	}
	if guests > 0 && file.Current(time.Now()) == 0 {
		s.addFinding(Warning, "%s has no guest whose time is not over: nobody can come in by a room until the list is made "+
			"anew", c.Rooms)
	}
	if n := file.Named(); n > 0 && !slices.Contains(c.Ask, config.AskLastName) {
		s.addFinding(Warning, "%s: %d of %d guests of %s have a last name, which click_through.ask does not ask for: they "+
			"cannot come in", s.LineOf("click_through.ask"), n, guests, c.Rooms)
	}
}
