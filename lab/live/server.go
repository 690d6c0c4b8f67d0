// Package live shows a folder of runs to browsers: the list of runs, the report of one as it grows, comparisons,
// courses over many runs, and progress for Prometheus. It reads the folder only, and takes no lock: whatever it does,
// a run goes on as without it.
package live

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/report"
)

// Config of a Server.
type Config struct {
	Dir string // of runs, or one run's folder
	// Token is what readers have to know; empty: none, and then only addresses of this machine are served.
	Token string
	// Look is how often a page that is open looks for what has changed. Default 2 s.
	Look time.Duration
	// Least is the least time between two reports of a run that goes on. Default 5 s.
	Least time.Duration
	// Log receives faults of connections; nil: nobody does. No request is logged, so no token is.
	Log *log.Logger
}

// Server answers browsers. Its methods may be called from several goroutines.
type Server struct {
	Config
	archive *archive.Archive
	gate    gate
	mux     *http.ServeMux

	computing sync.Mutex // one report, comparison or course is computed at a time
	shown     shelf      // reports
	courses   courses

	mu      sync.Mutex // guards what follows
	entries []archive.Entry
	looked  time.Time
	open    int // streams of events
}

// New prepares a server of a folder that exists.
func New(cfg Config) (*Server, error) {
	a, err := archive.Open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Look == 0 {
		cfg.Look = 2 * time.Second
	}
	if cfg.Least == 0 {
		cfg.Least = 5 * time.Second
	}
	s := &Server{Config: cfg, archive: a, gate: newGate(cfg.Token), mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /{$}", s.list)
	s.mux.HandleFunc("GET /run", s.run)
	s.mux.HandleFunc("GET /compare", s.compare)
	s.mux.HandleFunc("GET /trend", s.trend)
	s.mux.HandleFunc("GET /campaign", s.campaign)
	s.mux.HandleFunc("GET /events", s.events)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	for _, file := range assets {
		s.mux.HandleFunc("GET "+file.address, file.serve)
	}
	return s, nil
}

// Serve answers at a listener until that is closed. With certificate and key, files in PEM, it speaks TLS.
func (s *Server) Serve(l net.Listener, certificate, key string) error {
	quiet := s.Log
	if quiet == nil {
		quiet = log.New(discard{}, "", 0)
	}
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: quiet,
	}
	var err error
	if certificate != "" {
		err = server.ServeTLS(l, certificate, key)
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, net.ErrClosed) {
		return server.Close() // also what streams events
	}
	return err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// policy lets pages load nothing but the server's own files. Places of marks are attributes of style.
const policy = "default-src 'none'; style-src-elem 'self'; style-src-attr 'unsafe-inline'; script-src 'self'; " +
	"img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler answers requests: with the headers of all pages, and only to those who may read.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Cache-Control": "no-store", "Permissions-Policy": "camera=(), microphone=()",
		} {
			h.Set(name, value)
		}
		if !s.gate.admit(s, w, r) {
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// asset is a file of all pages.
type asset struct {
	address, kind, text string
}

var (
	//go:embed site.css
	siteStyle string
	//go:embed live.js
	siteScript string
)

var assets = []asset{
	{"/page.css", "text/css; charset=utf-8", report.Style()},
	{"/site.css", "text/css; charset=utf-8", siteStyle},
	{"/live.js", "text/javascript; charset=utf-8", siteScript}, // before the other changes what it compares
	{"/page.js", "text/javascript; charset=utf-8", report.Script()},
}

func (f asset) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", f.kind)
	_, _ = w.Write([]byte(f.text)) // a browser that has gone
}

// site is the frame of all pages.
func (s *Server) site(here string) *report.Site {
	site := &report.Site{}
	for _, file := range assets {
		if strings.HasSuffix(file.address, ".css") {
			site.Styles = append(site.Styles, file.address)
		} else {
			site.Scripts = append(site.Scripts, file.address)
		}
	}
	links := []report.Link{{Name: "Runs", Address: "/"}, {Name: "Trends", Address: "/trend"},
		{Name: "Campaigns", Address: "/campaign"}}
	for _, link := range links {
		link.Here = link.Address == here
		site.Links = append(site.Links, link)
	}
	return site
}

// send answers with a page.
func send(w http.ResponseWriter, status int, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // a browser that has gone
}

// sheet answers with a page of sections that a template makes.
func (s *Server) sheet(w http.ResponseWriter, status int, sheet report.Sheet, form string, data any) {
	var body, page bytes.Buffer
	err := forms.ExecuteTemplate(&body, form, data)
	if err == nil {
		sheet.Body = template.HTML(body.String())
		err = sheet.HTML(&page)
	}
	if err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, status, page.Bytes())
}

// sorry answers that something is not there, or cannot be read.
func (s *Server) sorry(w http.ResponseWriter, status int, title, format string, args ...any) {
	s.sheet(w, status, report.Sheet{Title: title, Site: s.site("")}, "sorry", fmt.Sprintf(format, args...))
}

// look lists the runs. What was seen within the last second is seen again.
func (s *Server) look() ([]archive.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < min(time.Second, s.Look/2) {
		return s.entries, nil
	}
	entries, err := s.archive.Look()
	if err != nil {
		return nil, err
	}
	s.entries, s.looked = entries, time.Now()
	return entries, nil
}

// entry finds a run by its name. A name that the archive does not list leads to no file.
func (s *Server) entry(name string) (e archive.Entry, ok bool, err error) {
	entries, err := s.look()
	for _, e := range entries {
		if e.Name == name {
			return e, true, nil
		}
	}
	return e, false, err
}
