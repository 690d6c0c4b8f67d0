// Tests of logins by a click that asks something, by HTTP and in Chromium. See login_test.go and browser_test.go for
// what they use.

package portal

import (
	"bytes"
	"errors"
	"html"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// hotel is the configuration of a portal that asks for a room, in which García has 204.
func hotel() Config {
	return Config{Title: "Hotel Adria", Methods: Methods{ClickThrough: true}, Terms: "Be kind.\n\nNo warranty.",
		Click: Click{Box: true, Ask: []Ask{{FieldRoom, true}, {FieldLastName, true}, {FieldEmail, false}},
			Room: func(room, lastName string) (user, number string, err error) {
				switch number = rooms.Fold(room); {
				case number == "999":
					err = errors.New("nobody knows the rooms")
				case number != "204" && number != "suite-e" || rooms.Fold(lastName) != "garcia":
					err = session.Reject("")
				}
				return "room:" + number, number, err
			}}}
}

// clickForm is the form of a hotel as a browser sends it, with changes: a field and its value.
func clickForm(t testing.TB, change ...string) url.Values {
	f := url.Values{"token": {token(t, clientA, "/login")}, "method": {"click"}, FieldRoom: {" 204 "},
		FieldLastName: {"garcía"}, FieldEmail: {""}, "accept": {versionOf([]string{"Be kind.", "No warranty."})}}
	for i := 0; i+1 < len(change); i += 2 {
		f.Set(change[i], change[i+1])
		if change[i+1] == "-" {
			f.Del(change[i])
		}
	}
	return f
}

// TestGuest: a guest who says what is asked comes in as the room, with what was said and accepted.
func TestGuest(t *testing.T) {
	w := start(t, hotel())
	r := request(t, clientA, base+"/login", clickForm(t, FieldEmail, "ada@example.org"))
	s, _ := w.table.Get(clientA)
	want := session.Guest{Terms: versionOf([]string{"Be kind.", "No warranty."}), Room: "204", LastName: "garcía",
		Email: "ada@example.org"}
	if r.StatusCode != 303 || s.User != "room:204" || s.Guest == nil || *s.Guest != want || s.Shared {
		t.Fatalf("%s: the client is %s as %q, %+v", r.Status, s.State, s.User, s.Guest)
	}
	if page := request(t, clientA, base+"/status", nil, browserOf(r)); !strings.Contains(page.main(), ">204<") {
		t.Errorf("the guest's browser does not see the room:\n%s", page.main())
	}
	// another browser of the device, or another device with its addresses
	page := request(t, clientA, base+"/status", nil)
	if strings.Contains(page.main(), "204") || !strings.Contains(page.main(), english.ConfirmRoomText) {
		t.Errorf("anybody sees the room, or is not asked for it:\n%s", page.main())
	}
	out := url.Values{"token": {token(t, clientA, "/status")}, "username": {"205"}}
	if r := request(t, clientA, base+"/logout", out); r.StatusCode != 200 || len(w.table.causes()) != 0 ||
		!strings.Contains(r.main(), english.OtherRoom) || !strings.Contains(r.main(), `aria-describedby="alert"`) {
		t.Errorf("log-out with another room: %s\n%s", r.Status, r.main())
	}
	out.Set("username", " ２０４")
	if r := request(t, clientA, base+"/logout", out); r.StatusCode != 303 || len(w.table.causes()) != 1 {
		t.Errorf("log-out with the room: %s", r.Status)
	}
}

// TestClickRefuses: what a form lacks or has wrong is said, on a page with the rest as typed; nobody comes in.
func TestClickRefuses(t *testing.T) {
	w := start(t, hotel())
	for name, tt := range map[string]struct {
		change []string
		want   string
	}{
		"terms not accepted":          {[]string{"accept", "-"}, english.NotAccepted},
		"former terms":                {[]string{"accept", "01234567"}, english.NotAccepted},
		"no room":                     {[]string{FieldRoom, ""}, english.CheckFields},
		"field left out":              {[]string{FieldLastName, "-"}, english.CheckFields},
		"room with a space":           {[]string{FieldRoom, "2 04"}, english.CheckFields},
		"room that folds to nothing":  {[]string{FieldRoom, "\u037a"}, english.CheckFields},
		"room that folds to spaces":   {[]string{FieldRoom, "\ufdfa"}, english.CheckFields},
		"name that folds to nothing":  {[]string{FieldLastName, "\uff9e"}, english.CheckFields},
		"over-long name":              {[]string{FieldLastName, strings.Repeat("x", 65)}, english.CheckFields},
		"control characters":          {[]string{FieldLastName, "gar\x1b[31mcía"}, english.CheckFields},
		"two lines":                   {[]string{FieldLastName, "garcía\r\nfake"}, english.CheckFields},
		"right-to-left override":      {[]string{FieldLastName, "garcía\u202eaicrag"}, english.CheckFields},
		"no UTF-8":                    {[]string{FieldLastName, "garc\xeda"}, english.CheckFields},
		"no address for e-mail":       {[]string{FieldEmail, "ada"}, english.CheckFields},
		"name beside the address":     {[]string{FieldEmail, "Ada <ada@example.org>"}, english.CheckFields},
		"markup":                      {[]string{FieldEmail, "<script>alert(1)</script>"}, english.CheckFields},
		"another client's form":       {[]string{"token", token(t, clientB, "/login")}, english.OldForm},
		"a form of nobody":            {[]string{"token", "-"}, english.OldForm},
		"a room that nobody has":      {[]string{FieldRoom, "205"}, english.WrongRoom},
		"somebody else's room number": {[]string{FieldLastName, "Smith"}, english.WrongRoom},
	} {
		r := request(t, clientA, base+"/login", clickForm(t, tt.change...))
		if r.StatusCode != 200 || !strings.Contains(r.main(), tt.want) {
			t.Errorf("%s: %s, no %q on\n%s", name, r.Status, tt.want, r.main())
		}
		if strings.Contains(r.body, "<script>alert") || strings.ContainsFunc(r.body,
			func(c rune) bool { return c != '\n' && unicode.IsControl(c) }) || strings.Contains(r.body, "\u202e") {
			t.Errorf("%s: the page has what was sent:\n%s", name, r.main())
		}
		if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
			t.Fatalf("%s: came in", name)
		}
	}
	large := clickForm(t, FieldLastName, strings.Repeat("x", maxFormBytes))
	if r := request(t, clientA, base+"/login", large); r.StatusCode != 413 {
		t.Errorf("a form of %d bytes: %s", maxFormBytes, r.Status)
	}
}

// TestButtonAccepts: with a button of an own page, or of a page before the terms had a version, nobody is asked again;
// with one of other terms they are.
func TestButtonAccepts(t *testing.T) {
	w := start(t, Config{Methods: Methods{ClickThrough: true}, Terms: "Be kind."})
	if r := request(t, clientA, base+"/login", clickForm(t, "accept", "01234567")); r.StatusCode != 200 ||
		!strings.Contains(r.main(), english.OldForm) {
		t.Errorf("former terms: %s", r.Status)
	}
	r := request(t, clientA, base+"/login", clickForm(t, "accept", "-"))
	if s, _ := w.table.Get(clientA); r.StatusCode != 303 || s.User != defaultGuest ||
		s.Guest.Terms != versionOf([]string{"Be kind."}) {
		t.Errorf("%s: %+v", r.Status, s.Login)
	}
}

// TestRoomWithAccents: a guest whose room has a letter with an accent is its owner with it and without.
func TestRoomWithAccents(t *testing.T) {
	w := start(t, hotel())
	form := clickForm(t, FieldRoom, "Suite-É")
	r := request(t, clientA, base+"/login", form)
	if s, _ := w.table.Get(clientA); r.StatusCode != 303 || s.User != "room:suite-e" {
		t.Fatalf("%s: the client is %s as %q", r.Status, s.State, s.User)
	}
	form.Set(FieldRoom, "suite-é") // a second tap
	form.Set(FieldLastName, "GARCIA")
	if s, _ := w.table.Get(clientA); !w.isOwner(form, s) {
		t.Errorf("a second tap is another's")
	}
	out := url.Values{"token": {token(t, clientA, "/status")}, "username": {"SUITE-É"}}
	if r := request(t, clientA, base+"/logout", out); r.StatusCode != 303 || len(w.table.causes()) != 1 {
		t.Errorf("log-out with the room: %s", r.Status)
	}
}

// TestOtherKeyboards: a guest comes in with the digits of another script, and a name with a character that only shapes
// letters, as their phone's keyboard has them.
func TestOtherKeyboards(t *testing.T) {
	for room, name := range map[string]string{"٢٠٤": "García", "۲۰۴": "Gar\u200ccía", "२०४": "Garc\u200día"} {
		w := start(t, hotel())
		r := request(t, clientA, base+"/login", clickForm(t, FieldRoom, room, FieldLastName, name))
		if s, _ := w.table.Get(clientA); r.StatusCode != 303 || s.User != "room:204" || s.Guest.LastName != name {
			t.Errorf("%q, %q: %s\n%s", room, name, r.Status, r.main())
		}
		w.stop()
	}
}

// TestRoomsAreNotKnown: where nobody knows who has which room, the guest is told to come back, and has not guessed.
func TestRoomsAreNotKnown(t *testing.T) {
	w := start(t, hotel())
	for range 12 {
		r := request(t, clientA, base+"/login", clickForm(t, FieldRoom, "999"))
		if r.StatusCode != 503 || !strings.Contains(r.body, english.UnavailableText) {
			t.Fatalf("%s:\n%s", r.Status, r.main())
		}
	}
	if st := w.Stats(); st.Unavailable != 12 || st.Rejected+st.BackedOff != 0 {
		t.Errorf("counted %+v", st)
	}
}

// TestRoomsAreNotGuessed: a wrong room counts for the device, for the room, and for all devices together, each of which
// then has to wait. Names are not in the log. How long is tested in package guesses: here they wait for half a minute.
func TestRoomsAreNotGuessed(t *testing.T) {
	var log bytes.Buffer
	cfg := hotel()
	cfg.Log = slog.New(slog.NewTextHandler(&syncWriter{w: &log}, nil))
	cfg.Guard = &guesses.Guard{}
	w := start(t, cfg)
	// wrong counts so many wrong rooms of a device, as if it had waited between them.
	wrong := func(device byte, room string, times int) {
		try, err := cfg.Guard.Enter(t.Context(), guesses.Attempter{MAC: guesses.MAC{2, 9, 0, 0, 0, device}})
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			try.WrongRoom(room)
		}
		try.Leave()
	}
	guess := func(device byte, room, name string) int {
		if err := w.table.change(clientA, func(s *session.Session) { s.MAC = [6]byte{2, 9, 0, 0, 0, device} }); err != nil {
			t.Fatal(err)
		}
		return request(t, clientA, base+"/login", clickForm(t, FieldRoom, room, FieldLastName, name)).StatusCode
	}
	if code := guess(1, "205", "Secretname"); code != 200 {
		t.Errorf("a first wrong room: %d", code)
	}
	wrong(1, "205", 20)
	if code := guess(1, "204", "García"); code != 429 {
		t.Errorf("while the guesser has to wait, the right room: %d", code)
	}
	if code := guess(2, "205", "Secretname"); code != 429 {
		t.Errorf("another device, of the room that was guessed: %d", code)
	}
	wrong(3, "206", 10_000)
	if code := guess(4, "204", "García"); code != 429 {
		t.Errorf("while all have to wait, the right room: %d", code)
	}
	w.stop()
	if text := log.String(); strings.Contains(text, "Secretname") ||
		!strings.Contains(text, "too many wrong rooms or voucher codes of all devices together") ||
		!strings.Contains(text, "a wrong room number or name") {
		t.Errorf("the log is\n%s", text)
	}
}

// TestToday: what is left of the day is on the login page once some of it is used, and on the status page. Nobody comes
// in with nothing left.
func TestToday(t *testing.T) {
	cfg := hotel()
	var today atomic.Pointer[Today]
	left := Today{Timed: true, Counted: true, Time: 80 * time.Minute, Bytes: 3e8,
		Again: time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC)}
	today.Store(&left)
	cfg.Click.Today = func(key session.Key, room string) (Today, error) { return *today.Load(), nil }
	w := start(t, cfg)
	if page := request(t, clientA, base+"/login", nil); strings.Contains(page.main(), english.TimeToday) {
		t.Errorf("a new device is told what is left:\n%s", page.main())
	}
	used := left
	used.Used = true
	today.Store(&used)
	for _, want := range []string{english.TimeToday, english.DataToday, "1 h 20 min", "300.0 MB", english.Again, "04:00"} {
		if page := request(t, clientA, base+"/login", nil); !strings.Contains(page.main(), want) {
			t.Errorf("no %q on the login page:\n%s", want, page.main())
		}
	}
	over := used
	over.Time, over.UsedUp = 0, true
	today.Store(&over)
	r := request(t, clientA, base+"/login", clickForm(t))
	if s, _ := w.table.Get(clientA); r.StatusCode != 200 || s.State == session.Authenticated ||
		!strings.Contains(r.main(), strings.ReplaceAll(english.UsedToday, "'", "&#39;")) ||
		!strings.Contains(r.main(), "04:00") {
		t.Errorf("used up: %s\n%s", r.Status, r.main())
	}
	today.Store(&left) // and used up while the form is being decided
	w.table.fails(&session.Rejection{Reason: session.UsedToday})
	if r := request(t, clientA, base+"/login", clickForm(t)); r.StatusCode != 200 ||
		!strings.Contains(r.main(), strings.ReplaceAll(english.UsedToday, "'", "&#39;")) {
		t.Errorf("used up meanwhile: %s\n%s", r.Status, r.main())
	}
	w.table.fails(nil)
	today.Store(&used)
	if r := request(t, clientA, base+"/login", clickForm(t)); r.StatusCode != 303 {
		t.Fatalf("with something left: %s", r.Status)
	}
	if page := request(t, clientA, base+"/status", nil); !strings.Contains(page.main(), "1 h 20 min") ||
		!strings.Contains(page.main(), "04:00") {
		t.Errorf("the status page:\n%s", page.main())
	}
}

// TestDayOver: a session that ended with the day's allowance is told of the day, not of used-up data.
func TestDayOver(t *testing.T) {
	cfg := hotel()
	cfg.Click.Today = func(session.Key, string) (Today, error) {
		return Today{Timed: true, Counted: true, Used: true, UsedUp: true}, nil
	}
	w := start(t, cfg)
	for _, ending := range []session.Ending{{Cause: session.Quota, Quota: session.TotalQuota},
		{Cause: session.SessionTimeout}} {
		s, _ := w.table.Get(clientA)
		s.State, s.LastEnding = session.PreAuth, ending
		w.table.set(s)
		page := request(t, clientA, base+"/login", nil)
		if main := html.UnescapeString(page.main()); !strings.Contains(main, english.UsedToday) ||
			strings.Contains(main, english.VolumeUp) || strings.Contains(main, english.TimeUp) {
			t.Errorf("after %+v with nothing left of the day:\n%s", ending, main)
		}
	}
}

// FuzzClickForm: whatever a form says, what is taken over is short, printable and as the field must be.
func FuzzClickForm(f *testing.F) {
	f.Add("room=204&last_name=Garc%C3%ADa&email=ada%40example.org&name=Ada&accept=01234567")
	f.Add("room=2%0004&last_name=%ff&email=Ada+%3Cada@example.org%3E&room=205")
	f.Add("room=" + strings.Repeat("9", 200) + "&name=%e2%80%ae")
	p := &Portal{termsVersion: "01234567"}
	for field := range maps.Keys(clickFields) {
		p.cfg.Click.Ask = append(p.cfg.Click.Ask, Ask{field, true})
	}
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		a := p.readClick(form)
		for field, text := range a.said {
			if !utf8.ValidString(text) || utf8.RuneCountInString(text) > clickFields[field].max ||
				strings.ContainsFunc(text, func(r rune) bool { return !rooms.InName(r) }) {
				t.Errorf("%s: took over %q", field, text)
			}
			if !a.wrong[field] && !clickFields[field].valid(text) {
				t.Errorf("%s: %q is right", field, text)
			}
		}
		if a.accepted && form.Get("accept") != p.termsVersion && form.Has("accept") {
			t.Errorf("accepted by %q", form.Get("accept"))
		}
	})
}

// TestGuestInBrowser is a hotel guest with a phone: they forget the box, mistype the room, and come in. The page's
// policy allows no script. Long: the steps of one visit.
func TestGuestInBrowser(t *testing.T) {
	cfg := hotel()
	cfg.RememberDays = 30
	cfg.Terms = "Use this network fairly.\n\nIt comes without any warranty, and what you send over it may be read by " +
		"others."
	cfg.Click.Today = func(session.Key, string) (Today, error) {
		return Today{Timed: true, Counted: true, Time: 80 * time.Minute, Bytes: 3e8, Used: true,
			Again: time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC)}, nil
	}
	w := start(t, cfg)
	b := newBrowser(t)
	b.setView(t, views[0])
	b.load(t, chromedp.Navigate("http://news.example/"))
	b.checkPage(t, "click")
	if n := eval[int](t, b, "document.scripts.length"); n != 0 {
		t.Errorf("the page has %d scripts", n)
	}
	order := []string{"summary", "terms", FieldRoom, FieldLastName, FieldEmail, "accept", "remember", "button"}
	if got := b.focused(t, len(order)); !slices.Equal(got, order) {
		t.Errorf("tab goes through %q, want %q", got, order)
	}
	// the browser itself holds on to a form without the box
	eval[bool](t, b, `document.querySelector("#room").focus(); true`)
	b.press(t, "305\r")
	if n := eval[int](t, b, `document.querySelectorAll(":invalid").length`); n == 0 || w.Stats().Rejected != 0 {
		t.Errorf("%d fields are invalid, and %d forms were refused", n, w.Stats().Rejected)
	}
	eval[bool](t, b, `document.querySelector("#last_name").focus(); true`)
	b.press(t, "García")
	eval[bool](t, b, `document.querySelector("[name=accept]").focus(); true`)
	b.press(t, " ")
	b.load(t, chromedp.Click("form > button"))
	if got := eval[string](t, b, `document.querySelector("[role=alert]").innerText`); got != english.WrongRoom {
		t.Errorf("a wrong room: %q", got)
	}
	if got := eval[string](t, b, `room.value + " " + last_name.value + " " + room.getAttribute("aria-describedby") + " " +
		document.querySelector("[name=accept]").checked`); got != "305 García alert true" {
		t.Errorf("after a wrong room the form has %q", got)
	}
	b.checkPage(t, "click-wrong")
	eval[bool](t, b, `room.value = "204"; true`)
	b.load(t, chromedp.Click("form > button"))
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || s.User != "room:204" {
		t.Errorf("the client is %s as %q", s.State, s.User)
	}
	b.checkPage(t, "click-status")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.consoleErrors {
		t.Errorf("console: %s", text)
	}
}
