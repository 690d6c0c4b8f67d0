// Package live serves a folder of runs to browsers: the list of runs, the report of a run while it grows, comparisons
// of runs, courses over many runs, and progress for Prometheus. It only reads the folder and takes no lock, so it does
// not disturb a run.
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
	Dir string // folder of runs, or of one run
	// Token is the password of readers. When it is empty, readers need none, but must use a loopback address.
	Token string
	// PollInterval is the interval at which the server looks for changes on behalf of an open page. Default 2 s.
	PollInterval time.Duration
	// ReportInterval is the shortest time between two reports of a run that goes on. Default 5 s.
	ReportInterval time.Duration
	// Log receives errors of connections; nil discards them. Requests, which may contain the token, are not logged.
	Log *log.Logger
}

// Server answers browsers. Its methods may be called from several goroutines.
type Server struct {
	Config
	archive *archive.Archive
	gate    gate
	mux     *http.ServeMux

	computing sync.Mutex  // one report, comparison or course is computed at a time
	reports   reportCache // reports
	courses   courses

	mu          sync.Mutex // guards the fields below
	entries     []archive.Entry
	entriesTime time.Time
	streams     int // streams of events
}

// New makes a server for a folder, which must exist.
func New(cfg Config) (*Server, error) {
	runs, err := archive.Open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 2 * time.Second
	}
	if cfg.ReportInterval == 0 {
		cfg.ReportInterval = 5 * time.Second
	}
	server := &Server{Config: cfg, archive: runs, gate: newGate(cfg.Token), mux: http.NewServeMux()}
	server.mux.HandleFunc("GET /{$}", server.list)
	server.mux.HandleFunc("GET /run", server.run)
	server.mux.HandleFunc("GET /compare", server.compare)
	server.mux.HandleFunc("GET /trend", server.trend)
	server.mux.HandleFunc("GET /campaign", server.campaign)
	server.mux.HandleFunc("GET /events", server.events)
	server.mux.HandleFunc("GET /metrics", server.metrics)
	for _, file := range assets {
		server.mux.HandleFunc("GET "+file.address, file.serve)
	}
	return server, nil
}

// Serve answers at a listener until that is closed. With certificate and key, files in PEM, it speaks TLS.
func (s *Server) Serve(listener net.Listener, certificate, key string) error {
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
		err = server.ServeTLS(listener, certificate, key)
	} else {
		err = server.Serve(listener)
	}
	if errors.Is(err, net.ErrClosed) {
		return server.Close() // also ends the event streams
	}
	return err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// policy lets pages load only the server's own files. Charts position their marks by style attributes.
const policy = "default-src 'none'; style-src-elem 'self'; style-src-attr 'unsafe-inline'; script-src 'self'; " +
	"img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler sets the headers of all pages and answers the requests that gate admits.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Cache-Control": "no-store", "Permissions-Policy": "camera=(), microphone=()",
		} {
			h.Set(name, value)
		}
		if !s.gate.admit(s, w, request) {
			return
		}
		s.mux.ServeHTTP(w, request)
	})
}

// asset is a style sheet or a script that all pages load.
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
	{"/live.js", "text/javascript; charset=utf-8", siteScript}, // reads the sections before page.js changes them
	{"/page.js", "text/javascript; charset=utf-8", report.Script()},
}

func (f asset) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", f.kind)
	_, _ = w.Write([]byte(f.text)) // an error: the browser has closed the connection
}

// site returns the frame of all pages. here is the address of the navigation link to mark as current, or "".
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

// send answers with a page of HTML.
func send(w http.ResponseWriter, status int, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // an error: the browser has closed the connection
}

// sheet answers with a page whose body the template form makes of data.
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

// errorPage answers with a page that says what is missing or cannot be read.
func (s *Server) errorPage(w http.ResponseWriter, status int, title, format string, args ...any) {
	s.sheet(w, status, report.Sheet{Title: title, Site: s.site("")}, "sorry", fmt.Sprintf(format, args...))
}

// runs lists the runs of the folder. It reads the folder at most once a second (or once in half a PollInterval, if that
// is shorter).
func (s *Server) runs() ([]archive.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.entriesTime) < min(time.Second, s.PollInterval/2) {
		return s.entries, nil
	}
	entries, err := s.archive.Look()
	if err != nil {
		return nil, err
	}
	s.entries, s.entriesTime = entries, time.Now()
	return entries, nil
}

// entry finds a run by its name. It opens no file by the name: only runs that the archive lists are found.
func (s *Server) entry(name string) (entry archive.Entry, ok bool, err error) {
	entries, err := s.runs()
	for _, entry := range entries {
		if entry.Name == name {
			return entry, true, nil
		}
	}
	return entry, false, err
}
