// Clients that come in by a click.

package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// How people accept portal.terms.
const (
	TermsButton = "button"
	TermsBox    = "box"
)

// What people may be asked: the names of the form's fields.
const (
	AskName     = "name"
	AskLastName = "last_name"
	AskRoom     = "room"
	AskEmail    = "email"
)

// ClickThrough is what clients that come in by a click accept, say and get.
type ClickThrough struct {
	Terms     string        // TermsButton or TermsBox
	Ask       []string      // in the form's order
	Optional  []string      // of Ask, those that may be left empty
	Rooms     string        // file; empty: none
	Profile   string        // name of the Profile of its sessions; empty: [limits] alone
	DailyTime time.Duration // of each device; 0: no limit
	DailyData uint64        // bytes, of each device
	// Of all devices of a room together.
	RoomDailyTime time.Duration
	RoomDailyData uint64
	DayBegins     time.Duration // since midnight
}

// Daily reports whether a day limits anything.
func (c ClickThrough) Daily() bool {
	return c.DailyTime > 0 || c.DailyData > 0 || c.RoomDailyTime > 0 || c.RoomDailyData > 0
}

// clickSettings are the keys of [click_through].
func (c *Config) clickSettings() []setting {
	t := &c.Click
	fields := list(strict.Word(AskRoom, AskLastName, AskName, AskEmail))
	return []setting{
		keyAt("click_through.terms", &t.Terms, strict.Word(TermsButton, TermsBox)),
		keyAt("click_through.ask", &t.Ask, fields),
		keyAt("click_through.optional", &t.Optional, fields),
		keyAt("click_through.rooms", &t.Rooms, file),
		keyAt("click_through.profile", &t.Profile, line(100)),
		keyAt("click_through.daily_time", &t.DailyTime, duration(minute, day)),
		keyAt("click_through.daily_data", &t.DailyData, size),
		keyAt("click_through.room_daily_time", &t.RoomDailyTime, duration(minute, 100*day)),
		keyAt("click_through.room_daily_data", &t.RoomDailyData, size),
		keyAt("click_through.day_begins", &t.DayBegins, hour),
	}
}

// hour reads a time of the day.
var hour = strict.AcceptText(`a time of the day such as "04:00"`, func(s string) (time.Duration, bool) {
	t, err := time.Parse("15:04", s)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*minute, err == nil && len(s) == len("04:00")
})

// checkClick checks the keys of [click_through] beside each other and those of other tables.
func (k *checker) checkClick() {
	const ask, rooms, optional = "click_through.ask", "click_through.rooms", "click_through.optional"
	c := k.Click
	if !k.Auth.Has(MethodClickThrough) {
		for _, s := range k.clickSettings() {
			k.refuseUnused(`"click-through" is not in auth.methods`, s.key)
		}
		return
	}
	if c.Terms == TermsBox && k.Portal.Terms == "" {
		k.report("portal.terms", `missing: click_through.terms is "box", which people check to accept them`)
	}
	for _, field := range c.Optional {
		switch {
		case !slices.Contains(c.Ask, field):
			k.report(optional, "%q is not in %s", field, ask)
		case field == AskRoom, field == AskLastName:
			k.report(optional, "%q cannot be left empty: the list of rooms is asked about it", field)
		}
	}
	room := slices.Contains(c.Ask, AskRoom)
	switch {
	case room && c.Rooms == "":
		k.report(rooms, `missing: "room" is in %s, and a file says who has which`, ask)
	case !room:
		k.refuseUnused(fmt.Sprintf(`"room" is not in %s`, ask), rooms, "click_through.room_daily_time",
			"click_through.room_daily_data")
	}
	if slices.Contains(c.Ask, AskLastName) && !room {
		k.report(ask, `"last_name" needs "room": the list of rooms has both; "name" is asked and not checked`)
	}
	if !c.Daily() {
		k.refuseUnused("no click_through.daily_time and no other key of the day is set", "click_through.day_begins")
	}
	if c.Profile != "" && !slices.ContainsFunc(k.Profiles, func(p Profile) bool { return p.Name == c.Profile }) {
		var names []string
		for _, p := range k.Profiles {
			names = append(names, p.Name)
		}
		k.report("click_through.profile", "no [[limits.profile]] is called %q%s", c.Profile, suggestion(c.Profile, names))
	}
}
