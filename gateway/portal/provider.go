// Logins at OpenID providers.

package portal

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Providers are the OpenID providers at which clients log in. Begin opens a provider's hosts for the device, and Finish
// closes them. Both end in reasonable time by themselves: a client waits. Their errors are those of package oidc, or
// session.ErrUnfit.
type Providers interface {
	Buttons() []oidc.Button
	Begin(context.Context, oidc.Wish) (oidc.Begun, error)
	Finish(context.Context, oidc.Answer) (oidc.Done, error)
}

var _ Providers = (*oidc.Desk)(nil)

// methodProvider is a value of the form field "method".
const methodProvider = "oidc"

// providerCookie binds a login at a provider to the browser that pressed the button. The prefix keeps pages of plain
// HTTP from setting it (RFC 6265bis, 4.1.3.2).
const providerCookie = "__Host-gatewayd-oidc"

// ProviderButton is a button of the login page.
type ProviderButton struct {
	Name string // the value of the form field "provider"
	Text string // of the button
}

// CallbackURL is the portal's URL for a provider's answers; empty: there is no https, or no name.
func (c Config) CallbackURL(provider string) string {
	if c.TLS == (TLS{}) || c.Name == "" {
		return ""
	}
	return newSite(strings.ToLower(c.Name), c.Address, c.TLS.Address).base + callbackPath(provider)
}

func callbackPath(provider string) string { return "/oidc/" + provider + "/callback" }

// buttons are those of the login page in a language.
func (p *Portal) buttons(t *Texts) (all []ProviderButton) {
	if p.cfg.Providers == nil {
		return nil
	}
	for _, b := range p.cfg.Providers.Buttons() {
		all = append(all, ProviderButton{b.Name, withName(t.SignInWith, b.Label)})
	}
	return all
}

// withName puts what a button calls a provider into a text.
func withName(text, name string) string { return strings.Replace(text, "%s", name, 1) }

// label is what the button of a provider calls it.
func (p *Portal) label(provider string) string {
	for _, b := range p.cfg.Providers.Buttons() {
		if b.Name == provider {
			return b.Label
		}
	}
	return ""
}

// toProvider begins a login at a provider, and sends the browser there. It does so by a page that leads on by itself:
// browsers apply the page's policy for forms to all redirections of a form's answer, and nobody knows to which hosts a
// provider redirects.
func (p *Portal) toProvider(w http.ResponseWriter, r *http.Request, page *Page, form url.Values, key session.Key) {
	wish := oidc.Wish{Provider: form.Get("provider"), Key: key, Link: page.URL, Remember: page.Remembers}
	if own := r.CookiesNamed(providerCookie); len(own) > 0 {
		wish.Cookie = own[0].Value
	}
	if p.tooOften(w, page, key, &p.buttonTries) {
		return
	}
	begun, err := p.cfg.Providers.Begin(peerOf(r).serverCtx, wish)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	if err != nil {
		p.providerFailed(w, page, key, wish.Provider, err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: providerCookie, Value: begun.Cookie, Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode})
	page = p.page(r, begun.URL)
	page.Languages = nil // the login has begun
	page.Heading = withName(page.T.SignInWith, p.label(wish.Provider))
	w.Header()["Refresh"] = []string{"0;url=" + begun.URL}
	p.render(w, http.StatusOK, "provider.html", page)
}

// providerRate bounds what a device costs: each button and each answer leads to questions to the DNS or the provider,
// and to a line in the log.
var providerRate = budget.Rate{AtOnce: 10, EachSecond: 1. / 5}

// providerDevices is of how many devices the rates are remembered.
const providerDevices = 4096

// tooOften answers a device that presses the button or brings answers more often than people do.
func (p *Portal) tooOften(w http.ResponseWriter, page *Page, key session.Key,
	tries *budget.Senders[[6]byte]) bool {
	if tries.Spend(key.MAC, true, budget.Now()) {
		return false
	}
	p.wait(w, page, "login.html", time.Duration(float64(time.Second)/providerRate.EachSecond))
	return true
}

// getCallback takes the answer that a provider sends by the browser.
func (p *Portal) getCallback(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Providers == nil {
		p.notFound(w, r)
		return
	}
	s, ok := p.client(w, r)
	if !ok {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	try, err := p.guard.Enter(r.Context(), guesses.Attempter{MAC: s.MAC})
	if err != nil {
		return // the client has disconnected
	}
	defer try.Leave()
	if s, ok = p.client(w, r); !ok {
		return
	}
	if s.State == session.Authenticated { // the page was loaded again
		p.redirect(w, r, "/status")
		return
	}
	answer := oidc.Answer{Provider: r.PathValue("provider"), Key: s.Key, Query: r.URL.RawQuery}
	if own := r.CookiesNamed(providerCookie); len(own) > 0 {
		answer.Cookie = own[0].Value
	}
	if p.tooOften(w, p.afterCallback(r, s.Key, ""), s.Key, &p.answerTries) {
		return
	}
	done, err := p.cfg.Providers.Finish(peerOf(r).serverCtx, answer)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	page := p.afterCallback(r, s.Key, done.Link)
	page.Remembers = page.Remember != "" && done.Remember
	if err != nil {
		p.providerFailed(w, page, s.Key, answer.Provider, err)
		return
	}
	p.admit(w, r, page, s.Key, done.Login)
}

// afterCallback is the login page for a browser that brought an answer. It has no languages: the links of their menu
// would lead to the callback, without the answer.
func (p *Portal) afterCallback(r *http.Request, key session.Key, link string) *Page {
	page := p.loginPage(p.page(r, link), p.tokens.formToken(key, time.Now()))
	page.Languages = nil
	return page
}

// providerFailed answers a login at a provider that has failed. The operator finds the reason in the log.
func (p *Portal) providerFailed(w http.ResponseWriter, page *Page, key session.Key, provider string, err error) {
	log := func(level func(string, ...any), text string) {
		level(text, "client", key.String(), "provider", provider, "error", err)
	}
	switch {
	case errors.Is(err, oidc.ErrStale), errors.Is(err, oidc.ErrUnknown):
		p.counters.forged.Add(1)
		p.staleLogins.Do(func() { log(p.log.Info, "log-in rejected: an answer for no open login at a provider") })
		page.Alert = page.T.StaleSignIn
	case errors.Is(err, oidc.ErrDenied):
		p.counters.rejected.Add(1)
		log(p.log.Info, "log-in rejected by the provider")
		page.Alert = withName(page.T.NotSignedIn, p.label(provider))
	case errors.Is(err, session.ErrUnfit):
		p.counters.rejected.Add(1)
		log(p.log.Info, "log-in rejected: the provider's user may not log in here")
		page.Alert = page.T.Unfit
	case errors.Is(err, oidc.ErrBusy):
		p.counters.unavailable.Add(1)
		p.manyLogins.Do(func() { log(p.log.Warn, "too many logins at providers are open: further ones have to wait") })
		p.wait(w, page, "login.html", busyTime)
		return
	case errors.Is(err, oidc.ErrAway):
		p.counters.unavailable.Add(1)
		p.awayProviders.Do(func() { log(p.log.Warn, "nobody could decide on a log-in") })
		p.unavailable(w, page)
		return
	default:
		p.failedProviders.Do(func() { log(p.log.Error, "a log-in at a provider failed") })
		p.fault(w, page)
		return
	}
	p.render(w, http.StatusOK, "login.html", page)
}

// busyTime is how long people are asked to wait while too many logins are open.
const busyTime = 30 * time.Second
