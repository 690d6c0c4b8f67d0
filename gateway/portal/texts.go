package portal

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Texts are all texts of the pages in one language, as in web/texts.en.toml.
type Texts struct {
	Lang    string // BCP 47
	Decimal string // decimal separator, as in "12.3"
	Days    string // the plural of day

	SignIn, SignOut, Connect       string
	User, Password, Terms          string
	Or, AcceptText                 string
	Incomplete, WrongPassword      string
	Wait                           string // with %d for seconds
	Remember                       string // with %d for days, two at least
	Devices, Unfit, MoreAsked      string
	OldForm, LoggedOut             string
	Online, OnlineText             string
	TimeLeft, Elapsed              string
	Sent, Received, DataLeft       string
	Continue, Refresh, SignOutText string
	Unknown, UnknownText           string
	Unavailable, UnavailableText   string
	FaultText                      string // the gateway itself failed, not the server that decides logins
	NotFound, NotFoundText         string
	Stay, Back                     string
	ConfirmText, OtherUser         string

	// Vouchers.
	Voucher, UseVoucher, NoCode, WrongCode        string
	VoucherExpired, VoucherUsedUp, VoucherRevoked string
	ConfirmCodeText                               string

	// By a click: what is asked, and so much a day.
	AcceptBox, NotAccepted                string
	Name, LastName, Room, Email, Optional string
	CheckFields, WrongRoom                string // WrongRoom: the list does not have the room, or another last name
	LeftToday, UsedToday, Again           string // Again: before the time at which the day's allowance begins again
	ConfirmRoomText                       string

	// How the session before ended, on the login page.
	TimeUp, Silent, Ended        string
	SentUp, ReceivedUp, VolumeUp string // which quota is used up
}

// defaultLanguage is that of clients who prefer none that there is.
const defaultLanguage = "en"

// builtInTexts returns the languages that need no file in an operator's folder, the default first. Their texts are in
// web/texts.LANGUAGE.toml.
var builtInTexts = sync.OnceValue(func() []*Texts {
	all := []*Texts{mustParse("texts."+defaultLanguage+".toml", Texts{})}
	names, err := fs.Glob(builtIn, "web/texts.*.toml") // in the order of their names
	if err != nil {
		panic(err) // the pattern is right
	}
	for _, name := range names {
		if name = path.Base(name); languageOf(name) != defaultLanguage {
			all = append(all, mustParse(name, *all[0]))
		}
	}
	return all
})

// mustParse reads a built-in file of texts. Texts that it lacks are taken from base.
func mustParse(name string, base Texts) *Texts {
	data, err := builtIn.ReadFile("web/" + name)
	if err == nil {
		base.Lang = languageOf(name)
		var t *Texts
		if t, err = parseTexts(name, data, base); err == nil {
			return t
		}
	}
	panic(err) // tests read all files
}

// maxLanguages bounds how many of a client's languages are considered.
const maxLanguages = 16

// textsFor chooses the preferred language of an Accept-Language field (RFC 9110, 12.5.4),
// the first of equals, and the first of languages if none matches.
func textsFor(accept string, languages []*Texts) *Texts {
	best, bestQuality := languages[0], 0.0
	for range maxLanguages {
		var item string
		item, accept, _ = strings.Cut(accept, ",")
		tag, params, _ := strings.Cut(item, ";")
		// An invalid weight excludes the language.
		quality := 1.0
		if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
			var err error
			if quality, err = strconv.ParseFloat(q, 64); err != nil || quality > 1 {
				quality = 0
			}
		}
		// "de-AT" is served with "de" (RFC 4647, 3.4).
		primary, _, _ := strings.Cut(strings.TrimSpace(tag), "-")
		for _, t := range languages {
			if quality > bestQuality && strings.EqualFold(primary, t.Lang) {
				best, bestQuality = t, quality
			}
		}
		if accept == "" {
			break
		}
	}
	return best
}

// status formats a session.
func (t *Texts) status(s session.Session, now time.Time) *Status {
	st := &Status{
		User: s.User, Elapsed: t.duration(now.Sub(s.Began)),
		Sent: t.bytes(s.UpBytes), Received: t.bytes(s.DownBytes),
	}
	left := remainingOf(s, now)
	if left.timed {
		st.TimeLeft = t.duration(left.time)
	}
	if left.quota {
		st.DataLeft = t.bytes(left.bytes)
	}
	return st
}

// ending says how a client's last session ended, where the user did not end it; "": there is nothing to say.
func (t *Texts) ending(e session.Ending) string {
	switch e.Cause {
	case session.SessionTimeout:
		return t.TimeUp
	case session.IdleTimeout:
		return t.Silent
	case session.AdminReset:
		return t.Ended
	case session.Quota:
		return cmp.Or(map[string]string{session.UpQuota: t.SentUp, session.DownQuota: t.ReceivedUp}[e.Quota], t.VolumeUp)
	}
	return ""
}

// duration is rounded down to one or two units: "45 s", "12 min", "3 h 5 min", "12 days".
func (t *Texts) duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d %s", d/day, t.Days)
	}
}

// bytes is a number of bytes in units of 1000, as data plans count: "12.3 MB".
func (t *Texts) bytes(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	// 999,950 would be rounded to "1000.0 kB".
	value := float64(n)
	unit := ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB", "EB"} {
		if value /= 1000; value < 999.95 {
			break
		}
	}
	return strings.Replace(strconv.FormatFloat(value, 'f', 1, 64), ".", t.Decimal, 1) + " " + unit
}
