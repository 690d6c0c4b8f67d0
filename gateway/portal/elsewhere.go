// A portal elsewhere, which package uam speaks with: clients are sent there instead of the login page.

package portal

import (
	"net/http"
	"strconv"

	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// redirectByPage redirects a captured request of a client that is not logged in by a page, if smart clients are to read
// it. url is that of the login page, and wanted as toElsewhere's.
func (p *Portal) redirectByPage(w http.ResponseWriter, r *http.Request, c *peer, url string, wanted bool) bool {
	switch {
	case p.cfg.Elsewhere != nil:
		p.toElsewhere(w, r, c, wanted)
	case p.cfg.WISPr:
		p.redirectWISPr(w, c, url)
	default:
		return false
	}
	return true
}

// toElsewhere redirects a captured request of a client that is not logged in, by a page that smart clients can read.
// wanted: the request was for a page to which the client may go on after the login.
func (p *Portal) toElsewhere(w http.ResponseWriter, r *http.Request, c *peer, wanted bool) {
	s, ok := p.client(w, r)
	if !ok {
		return
	}
	link := ""
	if wanted && r.Method == http.MethodGet && !c.secure {
		link = weblink.Original(r.Host, r.URL.RequestURI())
	}
	location, body := p.cfg.Elsewhere.Redirect(s, link)
	h := w.Header()
	h["Location"], h["Content-Type"] = []string{location}, htmlValue
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusFound)
	w.Write(body)
}
