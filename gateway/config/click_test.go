// Tests of the [click_through] keys. minimal is a good file (errors_test.go).

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestClickThroughProblems(t *testing.T) {
	const table = minimal + "[click_through]\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"not a way to log in", strings.Replace(table, `"click-through"`, `"voucher"`, 1) + "daily_time = \"2h\"\n",
			[]string{`x.toml:7: click_through.daily_time: has no effect: "click-through" is not in auth.methods`}},
		{"a box without terms", table + "terms = \"box\"\n",
			[]string{`x.toml:1: portal.terms: missing: click_through.terms is "box" …`}},
		{"unknown field", table + "ask = [\"rooms\"]\n",
			[]string{`x.toml:7: click_through.ask: … "rooms"; did you mean "room"?`}},
		{"asked twice", table + "ask = [\"name\", \"name\"]\n",
			[]string{`x.toml:7: click_through.ask: "name" is listed twice`}},
		{"optional and not asked", table + "ask = [\"name\"]\noptional = [\"email\"]\n",
			[]string{`x.toml:8: click_through.optional: "email" is not in click_through.ask`}},
		{"optional room", table + "ask = [\"room\"]\noptional = [\"room\"]\nrooms = \"r\"\n",
			[]string{`x.toml:8: click_through.optional: "room" cannot be left empty …`}},
		{"rooms that nobody lists", table + "ask = [\"room\"]\n",
			[]string{`x.toml:6: click_through.rooms: missing: "room" is in click_through.ask …`}},
		{"rooms that nobody asks for", table + "rooms = \"r\"\nroom_daily_data = \"1GB\"\n", []string{
			`x.toml:7: click_through.rooms: has no effect: "room" is not in click_through.ask`,
			`x.toml:8: click_through.room_daily_data: has no effect: …`}},
		{"a name of no room", table + "ask = [\"last_name\"]\n",
			[]string{`x.toml:7: click_through.ask: "last_name" needs "room" …`}},
		{"a day that limits nothing", table + "day_begins = \"04:00\"\n",
			[]string{`x.toml:7: click_through.day_begins: has no effect: …`}},
		{"no hour", table + "daily_time = \"2h\"\nday_begins = \"24:00\"\n",
			[]string{`x.toml:8: click_through.day_begins: must be a time of the day … "04:00" … "24:00"`}},
		{"more than a day", table + "daily_time = \"25h\"\n", []string{`x.toml:7: click_through.daily_time: … 24h …`}},
		{"no such profile", table + "profile = \"guest\"\n[[limits.profile]]\nname = \"guests\"\n",
			[]string{`x.toml:7: click_through.profile: no [[limits.profile]] … "guest"; did you mean "guests"?`}},
		{"unknown key", table + "dayly_time = \"2h\"\n",
			[]string{`x.toml:7: click_through.dayly_time: unknown key; did you mean "click_through.daily_time"?`}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// TestClickThrough: what the keys say, what holds without them, and that a network has its own.
func TestClickThrough(t *testing.T) {
	if c := parse(t, minimal); !reflect.DeepEqual(c.Click, ClickThrough{Terms: TermsButton}) || c.Click.Daily() {
		t.Errorf("without the table: %+v", c.Click)
	}
	c, err := Parse("/etc/x.toml", []byte(`wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
auth.methods = ["click-through"]
[click_through]
daily_time = "2h"
day_begins = "04:30"
[[network]]
name = "guests"
interface = "lan0"
address = "10.1.0.1/16"
[network.click_through]
ask = ["room", "last_name"]
rooms = "rooms"
daily_time = "3h"
[[network]]
name = "lobby"
interface = "lan1"
address = "10.2.0.1/16"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := ClickThrough{Terms: TermsButton, Ask: []string{AskRoom, AskLastName}, Rooms: "/etc/rooms",
		DailyTime: 3 * time.Hour, DayBegins: 4*time.Hour + 30*minute}
	if got := c.Networks[0].Click; !reflect.DeepEqual(got, want) || !got.Daily() {
		t.Errorf("the first network has %+v", got)
	}
	want = ClickThrough{Terms: TermsButton, DailyTime: 2 * time.Hour, DayBegins: want.DayBegins}
	if got := c.Networks[1].Click; !reflect.DeepEqual(got, want) {
		t.Errorf("the second network has %+v", got)
	}
}
