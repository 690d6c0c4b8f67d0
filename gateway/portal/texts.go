package portal

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Texts are all texts of the pages in one language, as in web/texts.en.toml.
type Texts struct {
	Lang     string // BCP 47
	LangName string // the language's own
	Decimal  string // decimal separator, as in "12.3"
	Units    string // of data, from bytes in steps of 1000: "B kB MB GB TB PB EB"
	// Units of time, with %d.
	Seconds, Minutes, Hours string
	Days                    Plural // two at least

	SignIn, SignOut, Connect       string
	User, Password, Terms          string
	Or, AcceptText                 string
	Incomplete, WrongPassword      string
	Wait                           Plural // seconds
	Remember                       Plural // days, two at least
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
	Stay, Back, Language           string
	ConfirmText, OtherUser         string

	// Vouchers.
	Voucher, UseVoucher, NoCode, WrongCode        string
	VoucherExpired, VoucherUsedUp, VoucherRevoked string
	ConfirmCodeText                               string

	// By a click: what is asked, and so much a day.
	AcceptBox, NotAccepted                string
	Name, LastName, Room, Email, Optional string
	CheckFields, WrongRoom                string // WrongRoom: the list does not have the room, or another last name
	TimeToday, DataToday                  string // left of the day
	UsedToday, Again                      string // Again: before the time at which the day's allowance begins again
	ConfirmRoomText, OtherRoom            string

	// OpenID providers, with %s for what the button calls one.
	SignInWith, NotSignedIn string
	StaleSignIn             string // its answer came too late, or to another device or browser

	// How the session before ended, on the login page.
	TimeUp, Silent, Ended        string
	SentUp, ReceivedUp, VolumeUp string // which quota is used up

	tag language.Tag // of Lang
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
		return withNumber(t.Seconds, int(d/time.Second))
	case d < time.Hour:
		return withNumber(t.Minutes, int(d/time.Minute))
	case d < 2*day:
		return withNumber(t.Hours, int(d/time.Hour)) + " " + withNumber(t.Minutes, int(d%time.Hour/time.Minute))
	default:
		return t.Days.For(int(d / day))
	}
}

// bytes is a number of bytes in units of 1000, as data plans count: "12.3 MB".
func (t *Texts) bytes(n uint64) string {
	units := strings.Fields(t.Units)
	if n < 1000 {
		return fmt.Sprintf("%d %s", n, units[0])
	}
	// 999,950 would be rounded to "1000.0 kB".
	value := float64(n)
	unit := ""
	for _, unit = range units[1:] {
		if value /= 1000; value < 999.95 {
			break
		}
	}
	return strings.Replace(strconv.FormatFloat(value, 'f', 1, 64), ".", t.Decimal, 1) + " " + unit
}
