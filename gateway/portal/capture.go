// Requests for other sites, which are redirected to the login page.

package portal

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// captured reports whether a request was meant for another site, by its connection's local address or by its Host
// field. Checking Host also keeps pages of other sites, whose names were made to resolve to the portal, from sending
// requests as if they were the portal's own pages (DNS rebinding).
func (p *Portal) captured(c *peer, r *http.Request) bool {
	s := p.siteOf(c)
	addr, hosts := s.addr, s.hosts
	if c.secure {
		addr, hosts = s.secure, s.tlsHosts
	}
	return c.local != addr || !hosts[strings.ToLower(r.Host)]
}

// answerCaptured redirects a client to the login page. Every client passes here many times before login, so the answer
// uses no template and has no body. The connection is closed, because the next request on it would be for another site.
func (p *Portal) answerCaptured(w http.ResponseWriter, r *http.Request, c *peer) {
	h := w.Header()
	h["Connection"] = closeValue
	h["Cache-Control"] = noStoreValue
	if r.Method == http.MethodConnect { // a request to a proxy
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s := p.siteOf(c)
	base := s.base
	host := cmp.Or(r.Host, c.local.String()) // HTTP/1.0 may have no Host
	isOwn := s.hosts[strings.ToLower(host)] || s.bareHosts[strings.ToLower(host)]
	if isOwn {
		host = "" // the client need not return to the portal after login
		// Another resolver may give the portal's name another address, so that a redirect by name would lead here again. Who
		// uses the address may have a resolver that does not know the name.
		if p.cert == nil && (c.local.Addr() != s.addr.Addr() || !p.named(r.Host)) {
			base = s.plainBase()
		}
	}
	probe := findProbe(host, r.URL.Path)
	page := "/login"
	if p.isAdmitted(c.client) {
		if probe != nil && probe.status != 0 {
			p.counters.probes.Add(1)
			probe.answer(w)
			return
		}
		// Not back to the site itself: if the data path does not agree that the client is admitted, the client would be
		// redirected in a loop.
		page = "/status"
		if isOwn && r.URL.Path == "/logout" {
			page = "/logout"
		}
	}
	url := base + page
	// Returning to the site would lose a request body, and over TLS only requests for the portal arrive.
	if probe == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !c.secure {
		url = withLink(url, weblink.Original(host, r.URL.RequestURI()))
	}
	p.counters.redirects.Add(1)
	if page == "/login" && p.redirectByPage(w, r, c, url, probe == nil && !isOwn) {
		return
	}
	h["Location"] = []string{url}
	w.WriteHeader(http.StatusFound)
}

// named reports whether a Host field is the portal's name.
func (p *Portal) named(host string) bool {
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	return p.cfg.Name != "" && name == p.cfg.Name
}

// currentSession returns the entry of a client as it is now.
func (p *Portal) currentSession(client netip.Addr) (session.Session, bool) {
	s, ok := p.sessions.Get(client)
	return s.At(time.Now()), ok
}

// isAdmitted reports whether a client is admitted, and records for a client without a session that it was shown the
// portal.
func (p *Portal) isAdmitted(client netip.Addr) bool {
	s, ok := p.currentSession(client)
	if ok && s.State == session.Leased {
		if err := p.sessions.Shown(client); err != nil {
			p.log.Debug("noting that a client was redirected", "client", client, "error", err)
		}
	}
	return ok && s.State == session.Authenticated
}

// Frequent header values, in net/http's form.
var (
	closeValue   = []string{"close"}
	noStoreValue = []string{"no-store"}
)

// withLink adds the URL that a client requested to one of the portal's URLs.
func withLink(page, link string) string {
	if link == "" {
		return page
	}
	return withQuery(page, "url", link)
}
