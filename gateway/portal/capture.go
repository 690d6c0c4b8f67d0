// Requests for other sites, which are redirected to the login page, and the URLs in them.

package portal

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// maxLink is the longest URL, in bytes, that the pages carry along for a client that asked for it. Longer ones are cut
// to the first page of their site.
const maxLink = 1024

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
		url = withLink(url, originalURL(host, r.URL.RequestURI()))
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

// originalURL is the URL of a captured request, from its Host field and its target; empty when these do not form the
// URL of a web page.
func originalURL(host, target string) string {
	name, port, err := net.SplitHostPort(host)
	bare, bracketed := strings.CutPrefix(host, "[")
	switch {
	case !bracketed && err != nil:
		name, port = host, ""
	case bracketed && err != nil && strings.HasSuffix(bare, "]"):
		name, port = strings.TrimSuffix(bare, "]"), ""
	}
	// The connection was to port 80, whatever the Host field says. SplitHostPort would take the brackets off a name too.
	if !validHost(name) && !bracketed || bracketed && !validIPv6(name) || port != "" && port != "80" {
		return ""
	}
	if bracketed {
		name = "[" + name + "]"
	}
	site := "http://" + strings.ToLower(name)
	if link, ok := parseLink(site + target); ok && strings.HasPrefix(target, "/") {
		return link
	}
	return site + "/"
}

// parseLink returns the normal form of a URL that may be shown as a link: http or https, absolute, with a valid host,
// without a password, not too long.
func parseLink(raw string) (link string, ok bool) {
	if len(raw) > maxLink {
		return "", false
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f { // browsers encode non-ASCII characters
			return "", false
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil {
		return "", false
	}
	if name := u.Hostname(); !validHost(name) && !validIPv6(name) || !validPort(u.Port()) {
		return "", false
	}
	u.RawQuery = quotes.Replace(u.RawQuery)
	if link = u.String(); len(link) > maxLink {
		return "", false
	}
	return link, true
}

// quotes are the characters that could end an attribute. package url encodes them everywhere but in a query.
var quotes = strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E")

// validHost reports whether s is a host name of letters, digits, hyphens and underscores, which occur in practice, or
// an IPv4 address (RFC 1123, 2.1).
func validHost(s string) bool {
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	var last string
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
		last = label
	}
	// Browsers read "1.2" and "0x7f.1" as addresses; only the plain form is accepted.
	if last[0] >= '0' && last[0] <= '9' {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return true
}

// validIPv6 reports whether s is an IPv6 address that a site may have, without a zone.
func validIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && !a.Is4In6() && a.Zone() == "" && a.IsGlobalUnicast()
}

func validPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
