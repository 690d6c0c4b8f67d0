package portal

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// Values of form fields.
const (
	methodClick   = "click" // of "method"; any other value is a login by name
	noteLoggedOut = "out"   // of "note"
)

// Redirects within the portal are relative, so that they keep the name by which the client reached the portal.

// getHome redirects a client to the page for its state.
func (p *Portal) getHome(w http.ResponseWriter, r *http.Request) {
	target := "/login"
	if s, ok := p.currentSession(peerOf(r).client); ok && s.State == session.Authenticated {
		target = "/status"
	}
	p.redirect(w, r, target)
}

// getLogin shows the form. Anybody can make a link with a URL in the query, so the URL is only shown as text and link
// and never followed automatically.
func (p *Portal) getLogin(w http.ResponseWriter, r *http.Request) {
	s, ok := p.client(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	link, _ := weblink.Parse(query.Get("url"))
	if s.State == session.Authenticated {
		p.redirect(w, r, withLink("/status", link))
		return
	}
	t, token := p.textsOf(r), p.tokens.formToken(s.Key, time.Now())
	loggedOut := query.Get("note") == noteLoggedOut
	ending := t.ending(s.LastEnding)
	if c := s.LastEnding.Cause; (c == session.Quota || c == session.SessionTimeout) && p.isDayOver(s.Key) {
		ending = t.UsedToday
	}
	used := p.usedToday(t, s.Key)
	if link == "" && !loggedOut && ending == "" && used == nil && p.chosen(r) == nil {
		p.sendForm(w, t, token)
		return
	}
	page := p.loginPage(p.page(r, link), token)
	page.Note, page.Today = ending, used
	if loggedOut {
		page.Note = page.T.LoggedOut
	}
	p.render(w, http.StatusOK, "login.html", page)
}

// postLogin admits a client or shows the page again. Errors that the user can correct are answered with 200: some
// captive-portal browsers replace 4xx pages with their own, and a 401 would have to carry a challenge (RFC 9110,
// 15.5.2) that makes browsers ask for a password themselves. Scripts recognise success by the 303.
func (p *Portal) postLogin(w http.ResponseWriter, r *http.Request) {
	form, ok := p.form(w, r)
	if !ok {
		return
	}
	s, ok := p.client(w, r)
	if !ok {
		return
	}
	// The request has been read. Its context would otherwise end with the time for reading, as if the client had
	// disconnected, while another login of the client is being decided.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	link, _ := weblink.Parse(form.Get("url"))
	if s.State == session.Authenticated { // a second tap on the button
		p.redirect(w, r, withLink("/status", link))
		return
	}
	page := p.sentPage(r, form, s.Key, link)
	if !p.tokens.valid(form.Get("token"), s.Key, time.Now()) {
		p.counters.forged.Add(1)
		page.Alert = page.T.OldForm
		p.render(w, http.StatusOK, "login.html", page)
		return
	}
	try, err := p.guard.Enter(r.Context(), guesses.Attempter{MAC: s.MAC})
	if err != nil {
		return // the client has disconnected
	}
	defer try.Leave()
	// A second tap on the button arrives here while the first is being decided.
	if s, ok = p.client(w, r); !ok {
		return
	}
	if s.State == session.Authenticated {
		if p.isOwner(form, s) { // the first answer, with its cookie, may have been discarded
			p.setCookie(w, r, s)
		}
		p.redirect(w, r, withLink("/status", link))
		return
	}
	p.logInBy(w, r, page, form, s, try)
}

// isOwner reports whether a form names the user of a session, or has the code of the voucher or the guest's room that
// admitted it.
func (p *Portal) isOwner(form url.Values, s session.Session) bool {
	if p.byVoucher(s) { // whose user's name is no secret
		return p.isCodeOf(form.Get("code"), s)
	}
	if byRoom(s) {
		return isRoomOf(form.Get(FieldRoom), s) && rooms.Fold(form.Get(FieldLastName)) == rooms.Fold(s.Guest.LastName)
	}
	return sameUser(form.Get("username"), s)
}

// logInBy logs a client in by the method of a form.
func (p *Portal) logInBy(w http.ResponseWriter, r *http.Request, page *Page, form url.Values, s session.Session,
	try *guesses.Try) {
	switch method := form.Get("method"); {
	case method == methodClick && p.cfg.Methods.ClickThrough:
		p.logInByClick(w, r, page, form, s, try)
		return
	case (method == methodProvider || method == "" && form.Get("provider") != "") && p.cfg.Providers != nil:
		p.toProvider(w, r, page, form, s.Key)
		return
	case method == methodVoucher && p.cfg.Methods.Voucher:
		p.logInByCode(w, r, page, Credentials{Code: strings.TrimSpace(form.Get("code")), Key: s.Key,
			FurtherAddrs: s.FurtherAddrs, Failures: try.FailedCodes()}, try)
		return
	}
	page.User = strings.TrimSpace(form.Get("username")) // phones append a space to completed words
	c := Credentials{User: page.User, Password: form.Get("password"), Key: s.Key,
		FurtherAddrs: s.FurtherAddrs, Failures: try.Failures(page.User)}
	p.logIn(w, r, page, c, try)
}

// sentPage returns the login page for a client that has sent its form.
func (p *Portal) sentPage(r *http.Request, form url.Values, key session.Key, link string) *Page {
	page := p.loginPage(p.page(r, link), p.tokens.formToken(key, time.Now()))
	page.Remembers = page.Remember != "" && form.Get("remember") != ""
	return page
}

// logIn checks credentials, after the delay that earlier wrong ones require.
func (p *Portal) logIn(w http.ResponseWriter, r *http.Request, page *Page, c Credentials, try *guesses.Try) {
	if c.User == "" || c.Password == "" || !p.cfg.Methods.Login {
		page.Alert = page.T.Incomplete
		p.render(w, http.StatusOK, "login.html", page)
		return
	}
	if wait := try.Wait(c.User); wait > 0 {
		p.wait(w, page, "login.html", wait)
		return
	}
	login, err := p.authenticate(peerOf(r).serverCtx, c)
	// The time for the answer begins now: the decision may have taken longer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	var no rejected
	switch {
	case err == nil:
		try.Right(c.User)
		p.admit(w, r, page, c.Key, login)
	case errors.As(err, &no):
		try.Wrong(c.User)
		p.counters.rejected.Add(1)
		p.log.Info("log-in rejected", "client", c.Key.String(), "user", c.User, "error", err)
		page.Wrong, page.Alert, page.Message = true, page.T.WrongPassword, session.ForUser(no.RejectMessage())
		p.render(w, http.StatusOK, "login.html", page)
	case errors.Is(err, session.ErrUnfit), errors.Is(err, session.ErrMoreAsked):
		p.unfit(w, page, c.Key, c.User, err)
	default:
		p.counters.unavailable.Add(1)
		p.log.Warn("nobody could decide on a log-in", "client", c.Key.String(), "user", c.User, "error", err)
		p.unavailable(w, page)
	}
}

// unfit answers a login that a server accepted with terms that this gateway cannot carry out (session.ErrUnfit).
func (p *Portal) unfit(w http.ResponseWriter, page *Page, key session.Key, user string, err error) {
	p.counters.rejected.Add(1)
	p.log.Warn("log-in rejected although the server did not reject it", "client", key.String(), "user", user, "error", err)
	page.Alert = page.T.Unfit
	if more := new(session.Challenge); errors.As(err, &more) {
		page.Alert, page.Message = page.T.MoreAsked, session.ForUser(more.Message)
	}
	p.render(w, http.StatusOK, "login.html", page)
}

// authenticate asks the Authenticator whether credentials are right. It goes on when the client disconnects, because
// the login may succeed and the client asks again. life ends with the portal's HTTP server.
func (p *Portal) authenticate(life context.Context, c Credentials) (session.Login, error) {
	if !session.PlausibleUser(c.User) || session.Reserved(c.User) || len(c.Password) > session.MaxPassword ||
		!utf8.ValidString(c.Password) {
		return session.Login{}, implausible{}
	}
	return p.auth.Authenticate(life, c)
}

// implausible is the error for credentials that cannot be valid.
type implausible struct{}

func (implausible) Error() string         { return "no such user name or password is possible" }
func (implausible) RejectMessage() string { return "" }

// admit starts the session and shows its limits.
func (p *Portal) admit(w http.ResponseWriter, r *http.Request, page *Page, key session.Key, login session.Login) {
	login.Remember = page.Remembers
	s, err := p.sessions.Admit(key.Addr, login)
	if errors.Is(err, session.ErrSessions) {
		p.counters.rejected.Add(1)
		p.log.Info("login rejected", "client", key.String(), "user", login.User, "error", err)
		page.Alert = page.T.Devices
		p.render(w, http.StatusOK, "login.html", page)
		return
	}
	if errors.Is(err, session.ErrUnfit) {
		p.unfit(w, page, key, login.User, err)
		return
	}
	if p.refuseVoucher(w, page, key, err) { // it was revoked meanwhile
		return
	}
	if errors.Is(err, session.ErrTryAgain) {
		p.counters.unavailable.Add(1)
		p.log.Warn("nobody could decide on a log-in", "client", key.String(), "user", login.User, "error", err)
		p.unavailable(w, page)
		return
	}
	if err != nil {
		p.log.Error("admitting a client", "client", key.String(), "user", login.User, "error", err)
		p.fault(w, page)
		return
	}
	p.counters.logins.Add(1)
	p.setCookie(w, r, s)
	if p.cfg.SuccessURL != "" {
		http.Redirect(w, r, p.cfg.SuccessURL, http.StatusSeeOther)
		return
	}
	p.redirect(w, r, withLink("/status", page.URL))
}

// loginPage makes a page the login page.
func (p *Portal) loginPage(page *Page, token string) *Page {
	page.Heading = page.T.SignIn
	page.Login, page.ClickThrough = p.cfg.Methods.Login, p.cfg.Methods.ClickThrough
	if page.Voucher = p.cfg.Methods.Voucher; page.Voucher {
		page.Script = voucherScript
	}
	page.Providers = p.buttons(page.T)
	page.Terms = p.terms
	if page.ClickThrough {
		p.showClick(page, answers{})
	}
	page.Token = token
	if days := p.cfg.RememberDays; days > 0 {
		page.Remember = page.T.Remember.For(days)
	}
	return page
}

// paragraphs splits plain text at its empty lines.
func paragraphs(text string) []string {
	var all []string
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
