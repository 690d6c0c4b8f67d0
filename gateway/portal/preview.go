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

// Preview serves every page in every state and language, and a page that lists them. load is called at each request,
// and returns what is previewed: of the Config Title, Terms and Templates count. What is wrong in the folder is shown
// in place of the page.
func Preview(load func() (Config, error)) http.Handler {
	return preview{load}
}

type preview struct{ load func() (Config, error) }

// Paths of a preview: of the pages' states, and of the list.
const statePath, listPath = "/page/", "/"

func (v preview) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	cfg, err := v.load()
	if err != nil {
		showMistake(w, err)
		return
	}
	p := &Portal{cfg: cfg, log: slog.Default(), terms: paragraphs(cfg.Terms)}
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
	v.route(w, r, p)
}

// route answers a request for the pages of p. Forms lead to the page that follows.
func (v preview) route(w http.ResponseWriter, r *http.Request, p *Portal) {
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
func (v preview) list(w http.ResponseWriter, r *http.Request, p *Portal) {
	t := p.textsOf(r)
	dark := r.URL.Query().Get("scheme") == "dark"
	var names []string
	for _, s := range states {
		names = append(names, s.name)
	}
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", htmlValue[0])
	scheme := map[bool]string{false: "light", true: "dark"}
	previewPages.ExecuteTemplate(w, "list.html", map[string]any{"Title": p.cfg.Title, "T": t,
		"Languages": p.pages.languages.menu(t, ""),
		"States":    names, "Folder": p.cfg.Templates, "Scheme": scheme[dark], "Other": scheme[!dark]})
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
