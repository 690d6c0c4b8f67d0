// A preview of the pages for an operator, without a network.

package portal

import (
	"cmp"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
)

// Previewed is what a preview shows.
type Previewed struct {
	// Config is the portal's: its Title, Terms and Templates count, and how clients log in (Methods, Click, Providers and
	// RememberDays). Without Methods and Providers every way is shown, as examples.
	Config Config
	// Network is the network whose portal it is; Networks are those to choose from: none if there is one alone.
	Network  string
	Networks []string
}

// Preview serves every page in every state and language, and a page that lists them. load is called at each request
// with the name of the network that the person has chosen, which is empty before, and of one that may be gone. What is
// wrong in the folder is shown in place of the page.
func Preview(load func(network string) (Previewed, error)) http.Handler {
	return preview{load}
}

type preview struct {
	load func(network string) (Previewed, error)
}

// networkKey is the key of the query by which a network is chosen in the list, and the cookie that keeps the choice.
const networkKey = "network"

// chosenNetwork returns the network that the person has chosen, and keeps it; "": none.
func chosenNetwork(w http.ResponseWriter, r *http.Request) string {
	if name := r.URL.Query().Get(networkKey); name != "" {
		http.SetCookie(w, &http.Cookie{Name: networkKey, Value: name, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		return name
	}
	if c, err := r.Cookie(networkKey); err == nil {
		return c.Value
	}
	return ""
}

// Paths of a preview: of the pages' states, and of the list.
const statePath, listPath = "/page/", "/"

func (v preview) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	shown, err := v.load(chosenNetwork(w, r))
	if err != nil {
		showMistake(w, err)
		return
	}
	cfg := shown.Config
	p := &Portal{cfg: cfg, log: slog.Default(), terms: paragraphs(cfg.Terms)}
	p.termsVersion = versionOf(p.terms)
	p.cfg.Title = cmp.Or(cfg.Title, defaultTitle)
	if p.pages, err = readPages(cfg.Templates); err != nil {
		showMistake(w, err)
		return
	}
	for _, h := range pageHeaders(p.pages.styleHash, "", true) {
		w.Header()[h.name] = h.value
	}
	// The list shows the pages in frames.
	const header = "Content-Security-Policy"
	w.Header().Set(header, strings.Replace(w.Header().Get(header), "frame-ancestors 'none'", "frame-ancestors 'self'", 1))
	w.Header().Set("X-Frame-Options", "SAMEORIGIN")
	shown.route(w, r, p)
}

// route answers a request for the pages of p. Forms lead to the page that follows.
func (v Previewed) route(w http.ResponseWriter, r *http.Request, p *Portal) {
	follow := map[string]string{"POST /login": "status", "POST /logout": "logged-out", "GET /login": "login",
		"GET /status": "status", "GET /logout": "logout"}
	switch path := r.URL.Path; {
	case path == listPath:
		v.list(w, r, p)
	case strings.HasPrefix(path, themePath):
		p.pages.images.serve(w, r, http.NotFound)
	case follow[r.Method+" "+path] != "":
		p.redirect(w, r, statePath+follow[r.Method+" "+path])
	default:
		for _, s := range states {
			if path != statePath+s.name {
				continue
			}
			// A state that the portal does not have is shown as an example: forms and bookmarks lead to it.
			var b strings.Builder
			page := p.statePage(s, r)
			if err := p.pages.templates[s.page].Execute(&b, page); err != nil {
				showMistake(w, templateError(p.cfg.Templates, s.page, err))
				return
			}
			send(w, http.StatusOK, page.T, []byte(b.String()))
			return
		}
		http.NotFound(w, r)
	}
}

// list sends the page that lists the states in one language, each in a frame of a phone's size.
func (v Previewed) list(w http.ResponseWriter, r *http.Request, p *Portal) {
	t := p.textsOf(r)
	dark := r.URL.Query().Get("scheme") == "dark"
	var names []string
	for _, s := range states {
		if p.hasState(s, r) {
			names = append(names, s.name)
		}
	}
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", htmlValue[0])
	scheme := map[bool]string{false: "light", true: "dark"}
	previewPages.ExecuteTemplate(w, "list.html", map[string]any{"Title": p.cfg.Title, "T": t,
		"Languages": p.pages.languages.menu(t, ""),
		"Network":   v.Network, "Networks": v.Networks,
		"States": names, "Folder": p.cfg.Templates, "Scheme": scheme[dark], "Other": scheme[!dark]})
}

// templatePlace finds the file and the line in an error of a template.
var templatePlace = regexp.MustCompile(`(?s)^(?:html/)?template: ?([^:]+):(\d+)(?::\d+)?: (.*)$`)

// templateError says where in the folder dir an error of the template name is.
func templateError(dir, name string, err error) error {
	text := err.Error()
	if m := templatePlace.FindStringSubmatch(text); m != nil {
		name, text = m[1]+":"+m[2], m[3]
	}
	return fmt.Errorf("%s: %s", filepath.Join(dir, name), text)
}

// showMistake sends a page that says what is wrong with the files.
func showMistake(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", htmlValue[0])
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.WriteHeader(http.StatusInternalServerError)
	previewPages.ExecuteTemplate(w, "mistake.html", err.Error())
}

// previewPages are the preview's own pages.
var previewPages = template.Must(template.ParseFS(builtIn, "web/preview/*.html"))
