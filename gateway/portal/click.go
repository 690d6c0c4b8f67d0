// Logins by a click: terms to accept, and what the operator asks.

package portal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/mail"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Click is what clients that come in by a click accept and say. The zero value asks nothing: the button accepts the
// terms.
type Click struct {
	// Box has the terms accepted by a checkbox.
	Box bool
	// Ask are the fields of the form, in their order.
	Ask []Ask
	// Room tells what sessions of the room of the guest with a last name, as typed, are called: "room:204", and the number
	// alone as rooms.Fold has it. The error wraps session.ErrRejected where the guest does not have the room; any other
	// one means that nobody knows. Needed with FieldRoom.
	Room func(room, lastName string) (user, number string, err error)
	// Today tells what is left of the day of a client, and of a room by its number; "": none. nil: no day limits anything.
	Today func(key session.Key, room string) (Today, error)
}

// Ask is a field that the form of the click has.
type Ask struct {
	Field    string // FieldName and so on
	Required bool
}

// Fields that the form of the click can have: the names of its inputs, and of Config.
const (
	FieldName     = "name"
	FieldLastName = "last_name"
	FieldRoom     = "room"
	FieldEmail    = "email"
)

// Today is what is left of a day.
type Today struct {
	Timed, Counted bool          // whether the day limits the time, and the bytes
	Time           time.Duration //
	Bytes          uint64        //
	Used           bool          // something of it is used
	UsedUp         bool          // nothing is left
	Again          time.Time     // when the next day begins, in the zone in which it is shown
}

// FieldOfPage is a field of the form of the click, as a page shows it.
type FieldOfPage struct {
	Name         string // of the input
	Label        string // in the page's language
	Value        string // as typed before
	Required     bool
	Wrong        bool
	Type         string // of the input
	Max          int    // characters
	Autocomplete string
}

// TodayOfPage is what is left of a day's time and data, as a page shows it.
type TodayOfPage struct {
	TimeLeft string // empty: not limited by the day
	DataLeft string // empty: not limited by the day
	Again    string // when the next day begins: "04:00"
	UsedUp   bool
}

// clickField is what a field is like.
type clickField struct {
	label              func(*Texts) string
	kind, autocomplete string
	max                int // characters
	valid              func(string) bool
}

var clickFields = map[string]clickField{
	FieldName: {func(t *Texts) string { return t.Name }, "text", "name", 100, hasLetter},
	FieldLastName: {func(t *Texts) string { return t.LastName }, "text", "family-name", rooms.MaxName,
		func(s string) bool { return rooms.ValidName(s, rooms.MaxName) }},
	FieldRoom:  {func(t *Texts) string { return t.Room }, "text", "off", rooms.MaxRoom, rooms.ValidRoom},
	FieldEmail: {func(t *Texts) string { return t.Email }, "email", "email", 254, isEmail}, // RFC 5321, 4.5.3.1
}

func hasLetter(s string) bool { return strings.ContainsFunc(s, unicode.IsLetter) }

// isEmail reports whether a text is an address for e-mail, without a name beside it.
func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Name == "" && a.Address == s && !strings.ContainsAny(s, " \"")
}

// typed returns the text of a field without space around it, and whether the field can have it. Control characters and
// longer texts could only serve attacks on logs, terminals and whoever reads accounting; none is shown again.
func typed(field string, form url.Values) (text string, ok bool) {
	f := clickFields[field]
	text = strings.TrimSpace(form.Get(field))
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > f.max ||
		strings.ContainsFunc(text, func(r rune) bool { return !rooms.InName(r) }) {
		return "", false
	}
	return text, f.valid(text)
}

// answers are what the form of the click says.
type answers struct {
	said     map[string]string // by field
	wrong    map[string]bool
	accepted bool
}

// readClick reads the form of the click. In a form of a former page, or of an own one, the field for the terms may be
// missing where no box is asked for.
func (p *Portal) readClick(form url.Values) answers {
	a := answers{said: map[string]string{}, wrong: map[string]bool{}}
	for _, ask := range p.cfg.Click.Ask {
		text, ok := typed(ask.Field, form)
		a.said[ask.Field] = text
		a.wrong[ask.Field] = !ok && (ask.Required || strings.TrimSpace(form.Get(ask.Field)) != "")
	}
	_, sent := form["accept"]
	a.accepted = p.termsVersion == "" || form.Get("accept") == p.termsVersion || !sent && !p.cfg.Click.Box
	return a
}

// versionOf names a text of terms: what people accepted can be told from later versions.
func versionOf(terms []string) string {
	if len(terms) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(terms, "\n\n")))
	return hex.EncodeToString(sum[:4])
}

// showClick sets what the form of the click has on a page.
func (p *Portal) showClick(page *Page, a answers) {
	page.Accept, page.Box = p.termsVersion, p.cfg.Click.Box && p.termsVersion != ""
	page.Fields = nil
	for _, ask := range p.cfg.Click.Ask {
		f := clickFields[ask.Field]
		page.Fields = append(page.Fields, FieldOfPage{Name: ask.Field, Label: f.label(page.T), Value: a.said[ask.Field],
			Required: ask.Required, Wrong: a.wrong[ask.Field], Type: f.kind, Max: f.max, Autocomplete: f.autocomplete})
	}
}

// logInByClick admits a client that accepts the terms and says what is asked.
func (p *Portal) logInByClick(w http.ResponseWriter, r *http.Request, page *Page, form url.Values, s session.Session,
	try *guesses.Try) {
	a := p.readClick(form)
	page.Accepted = a.accepted && page.Box
	page.NotAccepted = !a.accepted
	p.showClick(page, a)
	for _, wrong := range a.wrong {
		if wrong {
			page.Alert = page.T.CheckFields
		}
	}
	switch {
	case page.Alert != "":
	case !a.accepted && page.Box:
		page.Alert = page.T.NotAccepted
	case !a.accepted: // the terms are others by now
		page.Alert = page.T.OldForm
	}
	if page.Alert != "" {
		p.counters.rejected.Add(1)
		p.render(w, http.StatusOK, "login.html", page)
		return
	}
	login := p.cfg.Methods.Guest
	login.SessionID, login.For = session.NewID(), s.Key
	guest := &session.Guest{Terms: p.termsVersion, LastName: a.said[FieldLastName], Name: a.said[FieldName],
		Email: a.said[FieldEmail]}
	if room := a.said[FieldRoom]; room != "" && !p.findRoom(w, page, room, s.Key, guest, &login, try) {
		return
	}
	login.Guest = guest
	if !p.leftToday(w, page, s.Key, guest.Room) {
		return
	}
	p.admit(w, r, page, s.Key, login)
}

// findRoom looks for a guest's room, after the delay that wrong ones require, as those of vouchers' codes do. It
// answers, and reports false, where the client does not come in.
func (p *Portal) findRoom(w http.ResponseWriter, page *Page, room string, key session.Key, guest *session.Guest,
	login *session.Login, try *guesses.Try) bool {
	if wait, all := try.WaitRoom(rooms.Fold(room)); wait > 0 {
		if all {
			p.manyCodes.Do(func() {
				p.log.Warn("too many wrong rooms or voucher codes of all devices together: they have to wait", "client",
					key.String())
			})
		}
		p.wait(w, page, "login.html", wait)
		return false
	}
	user, number, err := p.cfg.Click.Room(room, guest.LastName)
	switch {
	case err == nil:
	case !errors.Is(err, session.ErrRejected):
		p.counters.unavailable.Add(1)
		p.log.Warn("nobody could decide on a log-in", "client", key.String(), "by", "room", "error", err)
		p.unavailable(w, page)
		return false
	default:
		try.WrongRoom(number)
		p.counters.rejected.Add(1)
		p.log.Info("log-in rejected: a wrong room number or name", "client", key.String(), "room", number, "failures",
			try.FailedCodes())
		page.Alert = page.T.WrongRoom
		for i := range page.Fields {
			f := &page.Fields[i]
			f.Wrong = f.Name == FieldRoom || f.Name == FieldLastName
		}
		p.render(w, http.StatusOK, "login.html", page)
		return false
	}
	try.RightRoom(number)
	guest.Room, login.User, login.Shared = number, user, false
	return true
}

// leftToday answers, and reports false, where nothing is left of the day of a client or a room.
func (p *Portal) leftToday(w http.ResponseWriter, page *Page, key session.Key, room string) bool {
	today, ok := p.today(key, room)
	if !ok || !today.UsedUp {
		return true // Admit decides
	}
	p.counters.rejected.Add(1)
	p.log.Info("log-in rejected: the day's time or data is used up", "client", key.String(), "room", room)
	page.Alert, page.Today = page.T.UsedToday, page.T.today(today)
	p.render(w, http.StatusOK, "login.html", page)
	return false
}

// today is what is left of the day of a client and a room, where a day limits anything.
func (p *Portal) today(key session.Key, room string) (t Today, ok bool) {
	if p.cfg.Click.Today == nil || !p.cfg.Methods.ClickThrough {
		return t, false
	}
	t, err := p.cfg.Click.Today(key, room)
	if err != nil {
		p.log.Error("what was used today is not known", "client", key.String(), "error", err)
		return t, false
	}
	return t, t.Timed || t.Counted
}

// isDayOver reports whether a device has used all of its day.
func (p *Portal) isDayOver(key session.Key) bool {
	today, ok := p.today(key, "")
	return ok && today.UsedUp
}

// usedToday is what is left of the day of a client that has used some of it; nil: it has not, or nothing is limited.
func (p *Portal) usedToday(t *Texts, key session.Key) *TodayOfPage {
	if today, ok := p.today(key, ""); ok && today.Used {
		return t.today(today)
	}
	return nil
}

// ofGuest is what is left of the day of a session by a click; nil: it is none, or nothing is limited.
func (p *Portal) ofGuest(t *Texts, s session.Session) *TodayOfPage {
	if s.Guest == nil {
		return nil
	}
	if today, ok := p.today(s.Key, s.Guest.Room); ok {
		return t.today(today)
	}
	return nil
}

// today formats what is left of a day.
func (t *Texts) today(d Today) *TodayOfPage {
	out := &TodayOfPage{Again: d.Again.Format("15:04"), UsedUp: d.UsedUp}
	if d.Timed {
		out.TimeLeft = t.duration(d.Time)
	}
	if d.Counted {
		out.DataLeft = t.bytes(d.Bytes)
	}
	return out
}

// byRoom reports whether a session was admitted by a room. Its people know the number.
func byRoom(s session.Session) bool { return s.Guest != nil && s.Guest.Room != "" }

// isRoomOf reports whether a room's number as typed is that of a session.
func isRoomOf(number string, s session.Session) bool {
	return byRoom(s) && rooms.Fold(number) == s.Guest.Room
}
