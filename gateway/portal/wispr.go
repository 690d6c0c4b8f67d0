// Logins of smart clients at the built-in portal (package wispr).

package portal

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/wispr"
)

// Paths for smart clients, over https.
const (
	wisprPath  = "/wispr/"
	wisprLogin = wisprPath + "login"
	wisprOut   = wisprPath + "logoff"
	wisprAbort = wisprPath + "abort"
)

// checkWISPr refuses smart clients that could not log in.
func (c *Config) checkWISPr() error {
	if c.WISPr && (c.TLS == (TLS{}) || !c.Methods.Login) {
		return errors.New("smart clients (WISPr) log in by name and password over https: configure both")
	}
	return nil
}

// wisprRoutes adds the handlers. A page of another site could send the requests too, by a browser, which says so.
func (p *Portal) wisprRoutes(m *http.ServeMux) {
	own := func(handle func(http.ResponseWriter, *http.Request, session.Session) wispr.Message) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
				p.counters.forged.Add(1)
				http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
				return
			}
			s, ok := p.client(w, r)
			if !ok {
				return
			}
			if m := handle(w, r, s); m.Kind != 0 {
				sendWISPr(w, http.StatusOK, m)
			}
		}
	}
	m.HandleFunc("POST "+wisprLogin, own(p.loginWISPr))
	m.HandleFunc("GET "+wisprOut, own(p.logoffWISPr))
	m.HandleFunc("GET "+wisprAbort, own(func(w http.ResponseWriter, r *http.Request, s session.Session) wispr.Message {
		if s.State == session.Authenticated {
			return wispr.Message{Kind: wispr.AbortLogin, Code: wispr.Succeeded, LogoffURL: p.siteOf(peerOf(r)).base + wisprOut}
		}
		return wispr.Message{Kind: wispr.AbortLogin, Code: wispr.Aborted}
	}))
}

// sendWISPr sends a page with a message.
func sendWISPr(w http.ResponseWriter, status int, m wispr.Message) {
	body := m.Page("Wi-Fi")
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = htmlValue, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

// redirectWISPr redirects a captured request to the login page, by a page that tells smart clients where to log in.
func (p *Portal) redirectWISPr(w http.ResponseWriter, c *peer, url string) {
	base := p.siteOf(c).base
	w.Header()["Location"] = []string{url}
	sendWISPr(w, http.StatusFound, wispr.Message{Kind: wispr.Redirect, Location: p.cfg.Title, LoginURL: base + wisprLogin,
		AbortLoginURL: base + wisprAbort})
}

// loginWISPr decides on a smart client's login, with the delays of the login page. A message without a kind: the client
// has hung up.
func (p *Portal) loginWISPr(w http.ResponseWriter, r *http.Request, s session.Session) (m wispr.Message) {
	form, ok := p.form(w, r)
	if !ok {
		return m
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as postLogin
	try, err := p.guard.Enter(r.Context(), guesses.Attempter{MAC: s.MAC})
	if err != nil {
		return m
	}
	defer try.Leave()
	if s, ok = p.client(w, r); !ok {
		return m
	}
	c := Credentials{User: strings.TrimSpace(form.Get("UserName")), Password: form.Get("Password"), Key: s.Key,
		FurtherAddrs: s.FurtherAddrs}
	c.Failures = try.Failures(c.User)
	m = wispr.Message{Kind: wispr.Authentication, Code: wispr.Succeeded}
	if s.State != session.Authenticated {
		m.Code, m.Text = p.decideWISPr(peerOf(r).serverCtx, c, try)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	if m.Code == wispr.Succeeded {
		m.LogoffURL = p.siteOf(peerOf(r)).base + wisprOut
	}
	return m
}

// decideWISPr asks whether credentials are right, and starts the session. text is for the person.
func (p *Portal) decideWISPr(life context.Context, c Credentials, try *guesses.Try) (code wispr.Code, text string) {
	if wait := try.Wait(c.User); wait > 0 {
		p.counters.backedOff.Add(1)
		return wispr.Rejected, "Too many attempts"
	}
	login, err := p.authenticate(life, c)
	var no rejected
	switch {
	case err == nil:
		try.Right(c.User)
		_, err = p.sessions.Admit(c.Key.Addr, login)
	case errors.As(err, &no):
		try.Wrong(c.User)
	}
	switch {
	case err == nil:
		p.counters.logins.Add(1)
		return wispr.Succeeded, ""
	case errors.As(err, &no), errors.Is(err, session.ErrSessions), errors.Is(err, session.ErrUnfit),
		errors.Is(err, session.ErrMoreAsked):
		p.counters.rejected.Add(1)
		p.log.Info("log-in rejected", "client", c.Key.String(), "user", c.User, "by", "wispr", "error", err)
		if no != nil {
			text = session.ForUser(no.RejectMessage())
		}
		return wispr.Rejected, text
	}
	p.counters.unavailable.Add(1)
	p.log.Warn("nobody could decide on a log-in", "client", c.Key.String(), "user", c.User, "by", "wispr", "error", err)
	return wispr.ServerError, ""
}

// logoffWISPr ends a smart client's session.
func (p *Portal) logoffWISPr(_ http.ResponseWriter, r *http.Request, s session.Session) wispr.Message {
	if s.State == session.Authenticated {
		if _, err := p.sessions.End(s.Addr, session.UserRequest); err != nil && !errors.Is(err, session.ErrLater) {
			p.counters.failed.Add(1)
			p.log.Error("ending a session", "client", s.Key.String(), "error", err)
			return wispr.Message{Kind: wispr.Logoff, Code: wispr.Internal}
		}
		p.counters.logouts.Add(1)
		p.log.Info("client logged out", "client", s.Key.String(), "user", s.User, "session", s.ID, "by", "wispr")
	}
	return wispr.Message{Kind: wispr.Logoff, Code: wispr.LoggedOff}
}
