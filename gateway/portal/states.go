// The states of the pages: what each may show. They try templates, and are what a preview shows.

package portal

import (
	"net/http"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// state is a state of a page.
type state struct {
	name string // of letters, digits and "-"
	page string // the file of the page
	set  func(*Page)
}

// states are all states, in the order in which a preview shows them. A field of Page that no state sets, and a text
// that no state shows, fails a test.
var states = slices.Concat([]state{
	{"login", "login.html", byName},
	{"login-voucher", "login.html", byVoucher},
	{"login-click", "login.html", byClick},
	{"login-click-asks", "login.html", asks},
	{"login-provider", "login.html", byProvider},
	{"login-all", "login.html", byAll},
	{"login-link", "login.html", func(p *Page) { byName(p); requested(p) }},
	{"no-name", "login.html", func(p *Page) { byName(p); p.Alert = p.T.Incomplete }},
	{"wrong-password", "login.html", func(p *Page) {
		byName(p)
		p.Wrong, p.User, p.Alert, p.Message = true, "anna@example.org", p.T.WrongPassword, "Your account has expired."
	}},
	{"wait", "login.html", func(p *Page) { byName(p); p.Alert = p.T.Wait.For(12) }},
	{"devices", "login.html", func(p *Page) { byName(p); p.Alert = p.T.Devices }},
	{"unfit", "login.html", func(p *Page) { byName(p); p.Alert = p.T.Unfit }},
	{"more-asked", "login.html", func(p *Page) { byName(p); p.Alert, p.Message = p.T.MoreAsked, "Your token?" }},
	{"old-form", "login.html", func(p *Page) { byAll(p); p.Remembers, p.Alert = true, p.T.OldForm }},
	{"logged-out", "login.html", func(p *Page) { byName(p); p.Note = p.T.LoggedOut }},
	{"no-code", "login.html", func(p *Page) { byVoucher(p); p.WrongCode, p.Alert = true, p.T.NoCode }},
	{"wrong-code", "login.html", func(p *Page) {
		byVoucher(p)
		p.Code, p.WrongCode, p.Alert = "K7HM-2XPD-9RTW", true, p.T.WrongCode
	}},
	{"voucher-expired", "login.html", func(p *Page) { byVoucher(p); p.Alert = p.T.VoucherExpired }},
	{"voucher-used-up", "login.html", func(p *Page) { byVoucher(p); p.Alert = p.T.VoucherUsedUp }},
	{"voucher-revoked", "login.html", func(p *Page) { byVoucher(p); p.Alert = p.T.VoucherRevoked }},
	{"not-accepted", "login.html", func(p *Page) { asks(p); p.NotAccepted, p.Alert = true, p.T.NotAccepted }},
	{"check-fields", "login.html", func(p *Page) {
		asks(p)
		p.Accepted, p.Fields[0].Wrong, p.Alert = true, true, p.T.CheckFields
	}},
	{"wrong-room", "login.html", func(p *Page) { asks(p); p.Accepted, p.Alert = true, p.T.WrongRoom }},
	{"used-today", "login.html", func(p *Page) {
		byClick(p)
		p.Today, p.Alert = &TodayOfPage{p.T.duration(0), p.T.bytes(0), "04:00", true}, p.T.UsedToday
	}},
	{"status", "status.html", func(p *Page) { online(p); requested(p) }},
	{"status-free", "status.html", func(p *Page) { online(p); p.Status.TimeLeft, p.Status.DataLeft = "", "" }},
	{"status-room", "status.html", func(p *Page) { online(p); p.Status.User, p.Status.Room = "", "214" }},
	{"status-today", "status.html", func(p *Page) {
		online(p)
		p.Today = &TodayOfPage{p.T.duration(45 * time.Minute), p.T.bytes(250e6), "04:00", false}
	}},
	{"not-signed-in", "login.html", func(p *Page) { byProvider(p); p.Alert = withName(p.T.NotSignedIn, sampleProvider) }},
	{"stale-sign-in", "login.html", func(p *Page) { byProvider(p); p.Alert = p.T.StaleSignIn }},
	{"to-provider", "provider.html", func(p *Page) {
		p.Heading, p.URL, p.URLHost = withName(p.T.SignInWith, sampleProvider), "https://login.example/", "login.example"
	}},
}, endings, confirmations("status", "status.html"), []state{
	{"logout", "logout.html", func(p *Page) { online(p); p.Heading = p.T.SignOut }},
}, confirmations("logout", "logout.html"), []state{
	{"other-user", "logout.html", func(p *Page) {
		online(p)
		p.Heading, p.Confirm, p.Wrong, p.Status.User, p.Alert = p.T.SignOut, true, true, "", p.T.OtherUser
	}},
	{"other-room", "logout.html", func(p *Page) {
		online(p)
		p.Heading, p.Confirm, p.ConfirmRoom, p.Wrong = p.T.SignOut, true, true, true
		p.Status.User, p.Alert = "", p.T.OtherRoom
	}},
	{"unknown", "error.html", func(p *Page) { p.Heading, p.Text = p.T.Unknown, p.T.UnknownText }},
	{"unavailable", "error.html", func(p *Page) { p.Heading, p.Text = p.T.Unavailable, p.T.UnavailableText }},
	{"fault", "error.html", func(p *Page) { p.Heading, p.Text = p.T.Unavailable, p.T.FaultText }},
	{"not-found", "error.html", func(p *Page) { p.Heading, p.Text = p.T.NotFound, p.T.NotFoundText }},
})

// endings are the login page's for each way in which the session before may have ended.
var endings = func() (all []state) {
	for _, e := range []struct {
		name string
		how  session.Ending
	}{
		{"time-up", session.Ending{Cause: session.SessionTimeout}}, {"silent", session.Ending{Cause: session.IdleTimeout}},
		{"ended", session.Ending{Cause: session.AdminReset}},
		{"sent-up", session.Ending{Cause: session.Quota, Quota: session.UpQuota}},
		{"received-up", session.Ending{Cause: session.Quota, Quota: session.DownQuota}},
		{"volume-up", session.Ending{Cause: session.Quota, Quota: session.TotalQuota}},
	} {
		all = append(all, state{e.name, "login.html", func(p *Page) { byName(p); p.Note = p.T.ending(e.how) }})
	}
	return all
}()

// confirmations are the states of a page that asks, in another browser, for what admitted the session.
func confirmations(name, page string) []state {
	by := func(code, room bool) func(*Page) {
		return func(p *Page) {
			online(p)
			p.Confirm, p.ConfirmCode, p.ConfirmRoom, p.Status.User = true, code, room, ""
			if page == "logout.html" {
				p.Heading = p.T.SignOut
			}
		}
	}
	return []state{{name + "-other-browser", page, by(false, false)},
		{name + "-other-browser-code", page, by(true, false)},
		{name + "-other-browser-room", page, by(false, true)}}
}

func byName(p *Page) {
	p.Heading, p.Login = p.T.SignIn, true
}

func byVoucher(p *Page) {
	p.Heading, p.Voucher, p.Script = p.T.SignIn, true, voucherScript
}

func byClick(p *Page) {
	p.Heading, p.ClickThrough, p.Accept = p.T.SignIn, true, "1"
	if p.Terms == nil {
		p.Terms = []string{"Use this network fairly. It comes without any warranty.",
			"What you send may be seen by others."}
	}
}

// asks is a click that asks everything that one can.
func asks(p *Page) {
	byClick(p)
	p.Box = true
	p.Fields = []FieldOfPage{
		{Name: "name", Label: p.T.Name, Required: true, Type: "text", Max: 64, Autocomplete: "name"},
		{Name: "lastname", Label: p.T.LastName, Value: "Rossi", Type: "text", Max: 64, Autocomplete: "family-name"},
		{Name: "room", Label: p.T.Room, Required: true, Type: "text", Max: 16, Autocomplete: "off"},
		{Name: "email", Label: p.T.Email, Type: "email", Max: 254, Autocomplete: "email"},
	}
}

// sampleProvider is what a button calls an OpenID provider.
const sampleProvider = "Example"

func byProvider(p *Page) {
	p.Heading, p.Providers = p.T.SignIn, []ProviderButton{{"example", withName(p.T.SignInWith, sampleProvider)}}
}

// byAll is every way to log in.
func byAll(p *Page) {
	asks(p)
	byProvider(p)
	byName(p)
	byVoucher(p)
	p.Remember = p.T.Remember.For(30)
}

// requested has the client have asked for a page.
func requested(p *Page) {
	p.URL, p.URLHost = "https://news.example/today", "news.example"
}

// online has a session.
func online(p *Page) {
	p.Heading, p.Reload = p.T.Online, withLink("/status"+p.Query, p.URL)
	p.Status = &Status{"anna@example.org", "", p.T.duration(95 * time.Minute), p.T.duration(71 * time.Hour),
		p.T.bytes(12.3e6), p.T.bytes(842e6), p.T.bytes(4.2e9)}
}

// statePage returns the page of a state, in a language. Of a portal whose ways to log in are known a login page has
// these; otherwise it has those of the state, as an example.
func (p *Portal) statePage(s state, r *http.Request) *Page {
	page := p.page(r, "")
	page.Token, page.Terms = "preview", p.terms
	s.set(page)
	if s.page == "login.html" && p.knowsLogin() {
		wrong := slices.ContainsFunc(page.Fields, func(f FieldOfPage) bool { return f.Wrong })
		page.Remember, page.Fields = "", nil
		if p.loginPage(page, page.Token); wrong && len(page.Fields) > 0 {
			page.Fields[0].Wrong = true
		}
	}
	return page
}

// knowsLogin reports whether it is known how clients log in.
func (p *Portal) knowsLogin() bool {
	m := p.cfg.Methods
	return m.Login || m.Voucher || m.ClickThrough || p.cfg.Providers != nil
}

// hasState reports whether a portal has a state: a login page that is an example of one way only if that is not known,
// and what concerns one way only where there is that.
func (p *Portal) hasState(s state, r *http.Request) bool {
	if !p.knowsLogin() {
		return true
	}
	real := p.loginPage(p.page(r, ""), "")
	room := slices.ContainsFunc(real.Fields, func(f FieldOfPage) bool { return f.Name == FieldRoom })
	has, depends := map[string]bool{
		"login-voucher": false, "login-click": false, "login-click-asks": false, "login-provider": false, "login-all": false,
		"no-name": real.Login, "wrong-password": real.Login, "more-asked": real.Login,
		"no-code": real.Voucher, "wrong-code": real.Voucher, "voucher-expired": real.Voucher,
		"voucher-used-up": real.Voucher, "voucher-revoked": real.Voucher,
		"status-other-browser-code": real.Voucher, "logout-other-browser-code": real.Voucher,
		"not-accepted": real.Box, "check-fields": len(real.Fields) > 0, "wrong-room": room, "status-room": room,
		"status-other-browser-room": room, "logout-other-browser-room": room, "other-room": room,
		"used-today": p.cfg.Click.Today != nil, "status-today": p.cfg.Click.Today != nil,
		"not-signed-in": len(real.Providers) > 0, "stale-sign-in": len(real.Providers) > 0,
		"to-provider": len(real.Providers) > 0,
	}[s.name]
	return has || !depends
}
