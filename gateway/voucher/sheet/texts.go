package sheet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// words are the texts of vouchers in one language.
type words struct {
	code, voucher  string
	join           string // with the login page's URL
	valid, until   string // with a length, and with a date
	online, data   string // with a length, and with an amount
	devices        string // with a number from 2 on
	days, hours    string // plurals, with a number
	day, hour      string
	minutes        string
	date, dateTime string // layouts
	decimal        string
}

var texts = map[string]words{
	"en": {code: "Access code", voucher: "Voucher %s", join: "Join the network, then scan, or open %s",
		valid: "Valid for %s from the first use", until: "Valid until %s", online: "%s online", data: "%s of data",
		devices: "%d devices at once", days: "%d days", day: "1 day", hours: "%d hours", hour: "1 hour",
		minutes: "%d minutes",
		date:    "2 January 2006", dateTime: "2 January 2006, 15:04", decimal: "."},
	"de": {code: "Zugangscode", voucher: "Voucher %s", join: "Mit dem Netz verbinden, dann scannen oder %s öffnen",
		valid: "Gültig %s ab erster Anmeldung", until: "Gültig bis %s", online: "%s online", data: "%s Daten",
		devices: "%d Geräte gleichzeitig", days: "%d Tage", day: "1 Tag", hours: "%d Stunden", hour: "1 Stunde",
		minutes: "%d Minuten", date: "02.01.2006", dateTime: "02.01.2006, 15:04 Uhr", decimal: ","},
}

// Languages lists the languages of sheets.
func Languages() []string { return slices.Sorted(maps.Keys(texts)) }

func (w *words) scan(link string) string {
	return fmt.Sprintf(w.join, strings.TrimPrefix(link, "http://"))
}

func (w *words) number(name string) string { return fmt.Sprintf(w.voucher, name) }

// details says what a voucher allows, a line each.
func (w *words) details(t voucher.Terms) (lines []string) {
	if t.ForSeconds > 0 {
		lines = append(lines, fmt.Sprintf(w.valid, w.length(t.ForSeconds)))
	}
	if !t.Until.IsZero() {
		lines = append(lines, fmt.Sprintf(w.until, w.moment(t.Until.Local())))
	}
	var allowed []string
	if t.OnlineSeconds > 0 {
		allowed = append(allowed, fmt.Sprintf(w.online, w.length(t.OnlineSeconds)))
	}
	if t.Bytes > 0 {
		allowed = append(allowed, fmt.Sprintf(w.data, w.amount(t.Bytes)))
	}
	if len(allowed) > 0 {
		lines = append(lines, strings.Join(allowed, ", "))
	}
	if t.Devices > 1 {
		lines = append(lines, fmt.Sprintf(w.devices, t.Devices))
	}
	if t.Note != "" {
		lines = append(lines, t.Note)
	}
	return lines
}

// moment is a date; the end of a day is that day.
func (w *words) moment(t time.Time) string {
	if t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 {
		return t.Add(-time.Second).Format(w.date)
	}
	return t.Format(w.dateTime)
}

// length is a duration in the largest unit of which it is a whole number: "24 hours", "7 days".
func (w *words) length(seconds int64) string {
	const hour, day = 3600, 24 * 3600
	of := func(n int64, one, several string) string {
		if n == 1 {
			return one
		}
		return fmt.Sprintf(several, n)
	}
	switch {
	case seconds%day == 0 && seconds > day:
		return of(seconds/day, w.day, w.days)
	case seconds%hour == 0:
		return of(seconds/hour, w.hour, w.hours)
	}
	return fmt.Sprintf(w.minutes, (seconds+59)/60)
}

// amount is a number of bytes: "500 MB", "1.5 GB".
func (w *words) amount(bytes uint64) string {
	value, unit := float64(bytes), 0
	for ; value >= 1000 && unit < 6; unit++ {
		value /= 1000
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return strings.Replace(text, ".", w.decimal, 1) + " " + []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}[unit]
}
