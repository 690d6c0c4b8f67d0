package admin

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
)

// tab is a page of the menu.
type tab struct{ Path, Name string }

var tabs = []tab{{"/sessions", "Sessions"}, {"/vouchers", "Vouchers"}, {"/networks", "Networks"}, {"/usage", "Usage"},
	{"/whois", "Who used"}, {"/health", "Health"}, {"/audit", "Audit log"}}

// view is what templates show: of all pages, and Body of one.
type view struct {
	Title  string
	Tabs   []tab
	Path   string
	Person *person // nil: nobody has logged in
	Form   string  // token that forms send back
	Note   string  // what was done
	Alert  string  // what went wrong
	Style  string  // path of the style sheet
	Script string
	Log    bool // people log in and out here, not at a proxy
	Body   any
}

var pageNames = []string{"login", "sessions", "session", "vouchers", "networks", "usage", "whois", "health", "audit",
	"error"}

// site is the parsed templates and the files that pages load.
type site struct {
	pages         map[string]*template.Template
	style, script string
	files         map[string][]byte
}

var funcs = template.FuncMap{
	"bytes": units.Bytes, "rate": func(n uint64) string { return units.Rate(n) },
	"duration": units.Duration,
	"seconds":  func(s float64) string { return units.Duration(time.Duration(s * float64(time.Second))) },
	"ago": func(t time.Time) string {
		if t.IsZero() {
			return "–"
		}
		return units.Duration(time.Since(t))
	},
	"when": func(t time.Time) string {
		if t.IsZero() {
			return "–"
		}
		return t.Local().Format("2006-01-02 15:04:05")
	},
	"iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339) }, "number": grouped, "left": leastLeft,
	"dash": func(s string) string {
		if s == "" {
			return "–"
		}
		return s
	},
	"state": stateWord,
}

// grouped writes a number with thin spaces between thousands.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// stateWord is a state in words.
func stateWord(s control.State) string {
	word := map[control.State]string{"authenticated": "online", "preauth": "login page", "leased": "has address"}[s]
	if word == "" {
		return string(s)
	}
	return word
}

// leastLeft is the data that is left of the quota that is used up first.
func leastLeft(l control.Left) string {
	least := "–"
	rest := ^uint64(0)
	for _, q := range []*uint64{l.UpBytes, l.DownBytes, l.TotalBytes} {
		if q != nil && *q <= rest {
			least, rest = units.Bytes(*q), *q
		}
	}
	return least
}

// readSite parses the built-in templates.
func readSite() (*site, error) {
	s := &site{pages: map[string]*template.Template{}, files: map[string][]byte{}}
	for _, name := range pageNames {
		t, err := template.New("layout.html").Funcs(funcs).ParseFS(files, "web/layout.html", "web/"+name+".html")
		if err != nil {
			return nil, err
		}
		s.pages[name] = t
	}
	for _, f := range []struct {
		name string
		path *string
	}{{"style.css", &s.style}, {"admin.js", &s.script}} {
		text, err := fs.ReadFile(files, "web/"+f.name)
		if err != nil {
			return nil, err
		}
		// The hash in its name lets browsers keep a file for good.
		sum := sha256.Sum256(text)
		*f.path = "/static/" + base64.RawURLEncoding.EncodeToString(sum[:9]) + "-" + f.name
		s.files[*f.path] = text
	}
	return s, nil
}

// policy lets pages load what is theirs, and nobody frame them.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// routes returns the handler of all paths.
func (s *Server) routes() (http.Handler, error) {
	pages, err := readSite()
	if err != nil {
		return nil, err
	}
	description, err := fs.ReadFile(files, "openapi.json")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, e := range endpoints {
		mux.HandleFunc(e.method+" "+e.path, s.api(e))
	}
	mux.HandleFunc("GET "+OpenAPIPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(description)
	})
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) { s.noOperation(w, r) })
	mux.HandleFunc("GET /static/{name}", pages.static)
	p := &paged{s, pages}
	mux.HandleFunc("GET /login", p.loginForm)
	mux.HandleFunc("POST /login", p.login)
	for _, h := range []struct {
		pattern string
		serve   func(http.ResponseWriter, *http.Request, *person)
	}{
		{"GET /{$}", func(w http.ResponseWriter, r *http.Request, _ *person) {
			http.Redirect(w, r, tabs[0].Path, http.StatusSeeOther)
		}},
		{"POST /logout", p.logout}, {"GET /sessions", p.sessions}, {"GET /sessions/{address}", p.session},
		{"POST /sessions/{address}/end", p.endSession}, {"POST /sessions/{address}/change", p.changeSession},
		{"GET /vouchers", p.vouchers}, {"POST /vouchers", p.createVouchers}, {"POST /vouchers/revoke", p.revokeVouchers},
		{"POST /vouchers/export", p.exportVouchers}, {"GET /networks", p.networks}, {"GET /usage", p.usage},
		{"GET /whois", p.whois}, {"GET /health", p.health}, {"GET /audit", p.auditLog}, {"/", p.notFound},
	} {
		mux.HandleFunc(h.pattern, p.forPerson(h.serve))
	}
	var cross http.CrossOriginProtection
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.counters.forged.Add(1)
		http.Error(w, "this form was sent by a page of another site", http.StatusForbidden)
	}))
	return s.guardAll(cross.Handler(mux)), nil
}

// guardAll sets what all answers have, bounds requests, and logs panics.
func (s *Server) guardAll(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				s.log.Error("a panic in the admin page", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			}
		}()
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if s.cert != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		if err := s.unfit(); err != nil { // since the connection was made
			s.expired(err)
			h.Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodOptions || r.Method == http.MethodTrace || path.Clean(r.URL.Path) != r.URL.Path {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// noOperation answers a request that is none of the API's.
func (s *Server) noOperation(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, refuse(http.StatusNotFound, "there is no %s %s", r.Method, r.URL.Path))
}

// static sends a file that pages load.
func (p *site) static(w http.ResponseWriter, r *http.Request) {
	text, found := p.files[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	kind := "text/css; charset=utf-8"
	if strings.HasSuffix(r.URL.Path, ".js") {
		kind = "text/javascript; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Write(text)
}

// paged serves pages.
type paged struct {
	*Server
	site *site
}

// forPerson serves those who have logged in; others get the login page. Forms must have the person's token.
func (p *paged) forPerson(serve func(http.ResponseWriter, *http.Request, *person)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := p.atPage(r)
		if who == nil {
			if named := p.byProxy(r); named != "" {
				p.show(w, http.StatusForbidden, "error", &view{Title: "No account",
					Alert: "The proxy names a user who has no account here."})
				return
			}
			to := "/login"
			if r.Method == http.MethodGet && r.URL.Path != "/" {
				to += "?next=" + url.QueryEscape(localPath(r.URL.RequestURI()))
			}
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := r.ParseForm(); err != nil {
				p.failed(w, r, who, bodyError(err))
				return
			}
			if !same(r.PostForm.Get("form"), who.form) {
				p.counters.forged.Add(1)
				p.failed(w, r, who, refuse(http.StatusForbidden, "the form is too old, or of another page: load the page anew"))
				return
			}
		}
		serve(w, r, who)
	}
}

// bodyError is why a form cannot be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "the form is larger than %d bytes", large.Limit)
	}
	return refuse(http.StatusBadRequest, "the form cannot be read: %w", err)
}

// show sends a page, whole or not at all.
func (p *paged) show(w http.ResponseWriter, status int, name string, v *view) {
	v.Tabs, v.Style, v.Script, v.Log = tabs, p.site.style, p.site.script, p.cfg.UserHeader == ""
	if v.Person != nil {
		v.Form = v.Person.form
	}
	var b bytes.Buffer
	if err := p.site.pages[name].Execute(&b, v); err != nil {
		p.log.Error("making a page of the admin page", "page", name, "err", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// failed sends a page with an error.
func (p *paged) failed(w http.ResponseWriter, r *http.Request, who *person, err error) {
	status := statusOf(err)
	if status >= http.StatusInternalServerError {
		p.log.Log(r.Context(), slog.LevelWarn, "admin: a request failed", "path", r.URL.Path, "err", err)
	}
	p.show(w, status, "error", &view{Title: http.StatusText(status), Path: firstPart(r.URL.Path), Person: who,
		Alert: err.Error()})
}

// firstPart is the path of the tab to which a path belongs.
func firstPart(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return "/" + first
}

func (p *paged) notFound(w http.ResponseWriter, r *http.Request, who *person) {
	p.failed(w, r, who, refuse(http.StatusNotFound, "There is no such page."))
}
