package portal

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// Status is a session as the status page shows it.
type Status struct {
	User     string // empty: the browser is not the one that logged in, or the user is a room
	Room     string // its number; empty: the user is none, or the browser not the one that logged in
	Elapsed  string // since login
	TimeLeft string // until it ends; empty: no end
	Sent     string // by the client
	Received string // by the client
	DataLeft string // before the quota is used up; empty: no quota
}

// getStatus shows the session. The page does not reload itself, because a reload loses a reader's position (WCAG 2.2.2,
// technique F41); it has a link for it.
func (p *Portal) getStatus(w http.ResponseWriter, r *http.Request) {
	s, ok := p.admitted(w, r)
	if !ok {
		return
	}
	link, _ := weblink.Parse(r.URL.Query().Get("url"))
	page := p.page(r, link)
	page.Heading = page.T.Online
	page.Token = p.tokens.formToken(s.Key, time.Now())
	page.Reload = withLink("/status"+page.Query, link)
	p.show(page, r, s)
	p.render(w, http.StatusOK, "status.html", page)
}

// getLogout asks for confirmation; a link must not log a user out.
func (p *Portal) getLogout(w http.ResponseWriter, r *http.Request) {
	s, ok := p.admitted(w, r)
	if !ok {
		return
	}
	p.render(w, http.StatusOK, "logout.html", p.logoutPage(r, s))
}

func (p *Portal) logoutPage(r *http.Request, s session.Session) *Page {
	page := p.page(r, "")
	page.Heading = page.T.SignOut
	page.Token = p.tokens.formToken(s.Key, time.Now())
	p.show(page, r, s)
	return page
}

// show sets the session on a page: the user's name only for the browser that logged in.
func (p *Portal) show(page *Page, r *http.Request, s session.Session) {
	page.Status, page.Today = page.T.status(s, time.Now()), p.ofGuest(page.T, s)
	if byRoom(s) {
		page.Status.User, page.Status.Room = "", s.Guest.Room
	}
	if !p.isByOwner(r, s) {
		page.Confirm, page.ConfirmCode, page.ConfirmRoom = true, p.byVoucher(s), byRoom(s)
		page.Status.User, page.Status.Room = "", ""
	}
}

// postLogout ends the session. A second one finds no session and is redirected to login.
func (p *Portal) postLogout(w http.ResponseWriter, r *http.Request) {
	form, ok := p.form(w, r)
	if !ok {
		return
	}
	s, ok := p.admitted(w, r)
	if !ok {
		return
	}
	if !p.tokens.valid(form.Get("token"), s.Key, time.Now()) {
		p.counters.forged.Add(1)
		p.redirect(w, r, "/logout") // asks again, with a new token
		return
	}
	if !p.isByOwner(r, s) && !p.confirmed(w, r, s, form.Get("username")) {
		return
	}
	if _, err := p.sessions.End(s.Addr, session.UserRequest); err != nil && !errors.Is(err, session.ErrLater) {
		p.log.Error("ending a session", "client", s.Key.String(), "error", err)
		p.fault(w, p.page(r, ""))
		return
	}
	p.counters.logouts.Add(1)
	p.log.Info("client logged out", "client", s.Key.String(), "user", s.User, "session", s.ID)
	p.redirect(w, r, "/login?note="+noteLoggedOut)
}

// admitted returns the session of an admitted client and redirects others to login.
func (p *Portal) admitted(w http.ResponseWriter, r *http.Request) (session.Session, bool) {
	s, ok := p.client(w, r)
	if ok && s.State != session.Authenticated {
		p.redirect(w, r, "/login")
		return s, false
	}
	return s, ok
}

// client returns the entry of the requesting client, or answers that there is none: without a lease a client cannot be
// admitted.
func (p *Portal) client(w http.ResponseWriter, r *http.Request) (session.Session, bool) {
	s, ok := p.currentSession(peerOf(r).client)
	if !ok {
		page := p.page(r, "")
		page.Heading, page.Text = page.T.Unknown, page.T.UnknownText
		p.render(w, http.StatusForbidden, "error.html", page)
	}
	return s, ok
}

// form reads a submitted form. It accepts only the encoding that the pages use.
func (p *Portal) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	err := r.ParseForm()
	if err == nil {
		peerOf(r).work()
		return r.PostForm, true
	}
	status := http.StatusBadRequest
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, http.StatusText(status), status)
	return nil, false
}

// retryAfter is the delay in a 503 answer, seconds.
const retryAfter = "10"

// unavailable answers that the login could not be decided, through no fault of the user.
func (p *Portal) unavailable(w http.ResponseWriter, page *Page) {
	p.renderUnavailable(w, page, page.T.UnavailableText)
}

// fault answers that the gateway itself could not carry out a request, for example because its disk is full.
func (p *Portal) fault(w http.ResponseWriter, page *Page) {
	p.counters.failed.Add(1)
	p.renderUnavailable(w, page, page.T.FaultText)
}

// renderUnavailable answers that something is not possible right now.
func (p *Portal) renderUnavailable(w http.ResponseWriter, page *Page, text string) {
	page.Heading, page.Text = page.T.Unavailable, text
	w.Header().Set("Retry-After", retryAfter)
	p.render(w, http.StatusServiceUnavailable, "error.html", page)
}

// notFound answers all other paths of the portal; requests for other sites are redirected before.
func (p *Portal) notFound(w http.ResponseWriter, r *http.Request) {
	page := p.page(r, "")
	page.Heading, page.Text = page.T.NotFound, page.T.NotFoundText
	p.render(w, http.StatusNotFound, "error.html", page)
}

// remaining is the rest of a session.
type remaining struct {
	timed bool
	time  time.Duration // until it ends, 0 when it should have
	quota bool
	bytes uint64 // until the first of its quotas is used up
}

// remainingOf returns the rest of an authenticated session at a time.
func remainingOf(s session.Session, now time.Time) remaining {
	var left remaining
	if timeout := s.Limits.SessionTimeout; timeout > 0 {
		left.timed, left.time = true, max(0, timeout-now.Sub(s.Began))
	}
	for _, q := range s.Quotas() {
		if !left.quota || q.Left < left.bytes {
			left.quota, left.bytes = true, q.Left
		}
	}
	return left
}
