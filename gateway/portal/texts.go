package portal

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Texts are all texts of the pages in one language.
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

	// How the session before ended, on the login page.
	TimeUp, Silent, Ended        string
	SentUp, ReceivedUp, VolumeUp string // which quota is used up
}

// builtInTexts are the languages that need no file; the first is the default.
var builtInTexts = []*Texts{english, german}

var english = &Texts{
	Lang: "en", Decimal: ".", Days: "days",
	SignIn: "Sign in", SignOut: "Sign out", Connect: "Accept and connect",
	User: "User name", Password: "Password", Terms: "Terms of use",
	Or: "or", AcceptText: "By connecting you accept the terms of use.",
	Incomplete:    "Please enter your user name and your password.",
	WrongPassword: "User name or password is wrong.",
	Wait:          "Too many attempts. Please wait %d s and try again.",
	Remember:      "Keep this device signed in for %d days",
	Devices:       "You are signed in with as many devices as allowed. Sign out on another device first.",
	Unfit:         "Your details are right, but this account cannot be used in this network. Please ask the operator.",
	MoreAsked:     "This account needs more than a password, which this page cannot ask for. Please ask the operator.",
	OldForm:       "This page had been open for too long. Please try again.",
	LoggedOut:     "You have signed out.",
	Online:        "You are online", OnlineText: "You can close this page.",
	TimeLeft: "Time left", Elapsed: "Connected for",
	Sent: "Sent", Received: "Received", DataLeft: "Data left",
	Continue: "Continue to", Refresh: "Refresh", SignOutText: "You will be disconnected from the Internet.",
	Unknown: "Device not known",
	UnknownText: "Your device has no address of this network. Disconnect from the network, connect again and open " +
		"this page once more.",
	Unavailable: "Not possible right now",
	UnavailableText: "The sign-in service does not answer. Your details have not been checked. Please try again in a " +
		"moment.",
	FaultText: "This network cannot do that at the moment, through no fault of yours. " +
		"Please try again later, or ask the operator.",
	NotFound: "Page not found", NotFoundText: "There is no such page here.",
	Stay: "Stay connected", Back: "To the start page",
	ConfirmText: "You signed in with another browser. Enter your user name to sign out.",
	OtherUser:   "You are not signed in with this user name.",
	Voucher:     "Voucher code", UseVoucher: "Use voucher",
	NoCode:         "Please enter the code of your voucher.",
	WrongCode:      "This voucher code is wrong. Please compare it with your voucher.",
	VoucherExpired: "This voucher has expired.", VoucherUsedUp: "This voucher is used up.",
	VoucherRevoked:  "This voucher was withdrawn by the network's operator.",
	ConfirmCodeText: "You signed in with another browser. Enter the code of your voucher to sign out.",
	TimeUp:          "Your time is used up.",
	Silent:          "You were signed out because your device was silent for a long time.",
	Ended:           "Your connection was ended by the network's operator.",
	SentUp:          "You have sent as much data as allowed.", ReceivedUp: "You have received as much data as allowed.",
	VolumeUp: "Your data volume is used up.",
}

var german = &Texts{
	Lang: "de", Decimal: ",", Days: "Tage",
	SignIn: "Anmelden", SignOut: "Abmelden", Connect: "Zustimmen und verbinden",
	User: "Benutzername", Password: "Passwort", Terms: "Nutzungsbedingungen",
	Or: "oder", AcceptText: "Mit dem Verbinden stimmen Sie den Nutzungsbedingungen zu.",
	Incomplete:    "Bitte geben Sie Benutzername und Passwort ein.",
	WrongPassword: "Benutzername oder Passwort ist falsch.",
	Wait:          "Zu viele Versuche. Bitte warten Sie %d s und versuchen Sie es erneut.",
	Remember:      "Dieses Gerät %d Tage lang angemeldet lassen",
	Devices: "Sie sind mit so vielen Geräten angemeldet wie erlaubt. Melden Sie sich zuerst auf einem anderen " +
		"Gerät ab.",
	Unfit: "Ihre Angaben stimmen, aber dieses Konto kann in diesem Netz nicht verwendet werden. Bitte wenden " +
		"Sie sich an den Betreiber.",
	MoreAsked: "Dieses Konto verlangt mehr als ein Passwort, wonach diese Seite nicht fragen kann. Bitte wenden Sie " +
		"sich an den Betreiber.",
	OldForm:   "Diese Seite war zu lange geöffnet. Bitte versuchen Sie es noch einmal.",
	LoggedOut: "Sie haben sich abgemeldet.",
	Online:    "Sie sind online", OnlineText: "Sie können diese Seite schließen.",
	TimeLeft: "Verbleibende Zeit", Elapsed: "Verbunden seit",
	Sent: "Gesendet", Received: "Empfangen", DataLeft: "Verbleibende Daten",
	Continue: "Weiter zu", Refresh: "Aktualisieren", SignOutText: "Ihre Verbindung zum Internet wird getrennt.",
	Unknown: "Unbekanntes Gerät",
	UnknownText: "Ihr Gerät hat keine Adresse dieses Netzes. Trennen Sie die Verbindung zum Netz, verbinden Sie " +
		"sich neu und öffnen Sie diese Seite noch einmal.",
	Unavailable: "Zurzeit nicht möglich",
	UnavailableText: "Der Anmeldedienst antwortet nicht. Ihre Angaben wurden nicht geprüft. Bitte versuchen Sie es " +
		"gleich noch einmal.",
	FaultText: "Das ist in diesem Netz zurzeit nicht möglich. Es liegt nicht an Ihnen. " +
		"Bitte versuchen Sie es später noch einmal, oder wenden Sie sich an den Betreiber.",
	NotFound: "Seite nicht gefunden", NotFoundText: "Diese Seite gibt es hier nicht.",
	Stay: "Verbunden bleiben", Back: "Zur Startseite",
	ConfirmText: "Dieser Browser hat Sie nicht angemeldet. Geben Sie zum Abmelden Ihren Benutzernamen ein.",
	OtherUser:   "Mit diesem Benutzernamen sind Sie hier nicht angemeldet.",
	Voucher:     "Zugangscode", UseVoucher: "Code einlösen",
	NoCode:         "Bitte geben Sie den Code Ihres Vouchers ein.",
	WrongCode:      "Dieser Zugangscode ist falsch. Bitte vergleichen Sie ihn mit Ihrem Voucher.",
	VoucherExpired: "Dieser Voucher ist abgelaufen.", VoucherUsedUp: "Dieser Voucher ist aufgebraucht.",
	VoucherRevoked:  "Dieser Voucher wurde vom Betreiber des Netzes zurückgezogen.",
	ConfirmCodeText: "Dieser Browser hat Sie nicht angemeldet. Geben Sie zum Abmelden den Code Ihres Vouchers ein.",
	TimeUp:          "Ihre Zeit ist aufgebraucht.",
	Silent:          "Sie wurden abgemeldet, weil Ihr Gerät lange nichts gesendet hat.",
	Ended:           "Der Betreiber des Netzes hat Ihre Verbindung beendet.",
	SentUp:          "Sie haben so viele Daten gesendet wie erlaubt.",
	ReceivedUp:      "Sie haben so viele Daten empfangen wie erlaubt.", VolumeUp: "Ihr Datenvolumen ist aufgebraucht.",
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
