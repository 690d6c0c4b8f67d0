// Which browser may see the user's name and sign out.

package portal

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// A device with a copy of a client's MAC and IP address is that client to the data path and to the portal. It does not
// have the cookie that the portal gave the browser which logged in, and its owner does not know the user's name.
// Without the cookie the pages do not show the name, and sign a client out only if the name is typed: people who logged
// in with another browser, such as the sign-in sheet of a phone, know their name.

const (
	cookieName = "gatewayd"
	// cookieAge is longer than sessions are; the cookie is worth nothing after its session.
	cookieAge = 30 * 24 * time.Hour
)

// setCookie gives the browser that logged in the cookie of its session.
func (p *Portal) setCookie(w http.ResponseWriter, r *http.Request, s session.Session) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: base64.RawURLEncoding.EncodeToString(p.tokens.sessionCookie(s)), Path: "/",
		MaxAge: int(cookieAge / time.Second), Secure: peerOf(r).secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// isByOwner reports whether a request is by the browser that logged in. The name of click-through clients is
// everybody's, so they need no cookie.
func (p *Portal) isByOwner(r *http.Request, s session.Session) bool {
	if p.cfg.Methods.ClickThrough && s.User == p.cfg.Methods.Guest.User && !byRoom(s) {
		return true
	}
	for _, c := range r.CookiesNamed(cookieName) {
		if p.tokens.isCookieOf(c.Value, s) {
			return true
		}
	}
	return false
}

// sameUser compares names as the table does when it counts a user's sessions.
func sameUser(typed string, s session.Session) bool {
	return session.SameUser(strings.TrimSpace(typed), s.User)
}

// confirmed reports whether a form without the session's cookie has its user's name, or asks for it again. Wrong names
// are slowed down like wrong passwords.
func (p *Portal) confirmed(w http.ResponseWriter, r *http.Request, s session.Session, name string) bool {
	try, err := p.guard.Enter(r.Context(), guesses.Attempter{MAC: s.MAC})
	if err != nil {
		return false // the client has disconnected
	}
	defer try.Leave()
	page := p.logoutPage(r, s)
	byCode := p.byVoucher(s)
	wait := try.Wait("")
	if byCode {
		wait, _ = try.WaitCode()
	}
	if wait > 0 {
		p.wait(w, page, "logout.html", wait)
		return false
	}
	switch {
	case byCode && p.isCodeOf(name, s), !byCode && (sameUser(name, s) || isRoomOf(name, s)):
		return true
	case byCode:
		try.WrongCode()
	default:
		try.WrongName()
	}
	p.counters.rejected.Add(1)
	p.log.Info("log-out rejected: neither the cookie of the login nor the user's name", "client", s.Key.String(),
		"session", s.ID)
	page.Wrong, page.Alert = true, page.T.OtherUser
	switch {
	case byCode:
		page.Alert = page.T.WrongCode
	case byRoom(s):
		page.Alert = page.T.OtherRoom
	}
	p.render(w, http.StatusOK, "logout.html", page)
	return false
}
