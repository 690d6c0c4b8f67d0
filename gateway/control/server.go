package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Limits on the cost of requests for the daemon.
const (
	maxConnections  = 32
	maxBodyBytes    = 16 << 10
	requestTimeout  = 5 * time.Second // for a request to arrive
	stallTimeout    = 5 * time.Second // of a reader that does not read
	listTimeout     = time.Minute     // for all sessions
	logoutTimeout   = 5 * time.Minute // for all sessions to end
	shutdownTimeout = time.Second     // for requests in progress when the daemon ends
	logoutWorkers   = 64              // ended concurrently: they share a write to the disk
	maxUserBytes    = 253             // RFC 2865, 5
)

// server answers requests.
type server struct {
	Answers
	stallAfter time.Duration
}

// Answers are what a daemon knows and does.
type Answers struct {
	Networks func() []Network   // the networks that are served now
	Status   func() Status      // must return quickly
	Reload   func() ReloadReply // reads the configuration again; nil: that is not possible
	Vouchers VoucherBook        // nil: there are none
	Cluster  *Cluster           // the store that several gateways share; nil: there is none

	Become    func(active bool) error // has a gateway of two serve, or be the standby; nil: it is alone
	IsStandby func() bool             // it serves nobody, and nothing of it is changed; nil: it is alone
}

// Single returns the Answers of a daemon with one network.
func Single(network Network, status func() Status) Answers {
	only := []Network{network}
	return Answers{Networks: func() []Network { return only }, Status: status}
}

// Serve answers until ctx ends. It then waits for requests in progress for shutdownTimeout, and closes the socket.
// Errors of connections go to slog's default logger.
func (s *Socket) Serve(ctx context.Context, answers Answers) error {
	srv := &http.Server{
		Handler:           (&server{answers, s.stallAfter}).routes(),
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, IdleTimeout: requestTimeout,
		MaxHeaderBytes: 8 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ErrorLog:       slog.NewLogLogger(slog.Default().Handler(), slog.LevelError),
	}
	srv.SetKeepAlivesEnabled(false) // one request a connection, so that no idle connection is held
	ended := make(chan error, 1)
	go func() {
		ended <- srv.Serve(&limitedListener{Listener: s.listener, free: make(chan struct{}, maxConnections)})
	}()
	var err error
	select {
	case err = <-ended:
		err = fmt.Errorf("serving the control socket: %w", err)
	case <-ctx.Done():
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
		<-ended
	}
	return errors.Join(err, s.Close())
}

// limitedListener answers connections beyond a limit with tooManyReply, instead of queueing them.
type limitedListener struct {
	net.Listener
	free chan struct{} // has an element for each open connection
}

// tooManyReply is the answer to a connection beyond the limit.
const tooManyReply = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"error":"too many control connections: try again"}` + "\n"

// Accept implements net.Listener.
func (b *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.free <- struct{}{}:
			return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-b.free })}, nil
		default:
			// The answer fits into a new socket's buffer.
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(conn, tooManyReply)
			conn.Close()
		}
	}
}

// limitedConn is a connection of a limitedListener. Its Close frees its place.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Status()) })
	mux.HandleFunc("GET /v1/sessions", s.list)
	mux.HandleFunc("GET /v1/sessions/{addr}", s.get)
	mux.HandleFunc("POST /v1/login", s.unlessStandby(s.login))
	mux.HandleFunc("POST /v1/logins", s.unlessStandby(s.logins))
	mux.HandleFunc("POST /v1/logout", s.unlessStandby(s.logout))
	mux.HandleFunc("GET /v1/vouchers", s.unlessStandby(s.listVouchers))
	mux.HandleFunc("POST /v1/vouchers", s.unlessStandby(s.createVouchers))
	mux.HandleFunc("POST /v1/vouchers/revoke", s.unlessStandby(s.revokeVouchers))
	mux.HandleFunc("GET /v1/devices", s.unlessStandby(s.listDevices))
	mux.HandleFunc("GET /v1/cluster", s.members)
	mux.HandleFunc("GET /v1/cluster/sessions", s.clusterSessions)
	mux.HandleFunc("POST /v1/cluster/forget", s.forgetGateway)
	mux.HandleFunc("POST /v1/cluster/role", s.become)
	mux.HandleFunc("POST /v1/devices/forget", s.unlessStandby(s.forget))
	if s.Reload != nil {
		mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, _ *http.Request) {
			// Writing begins when it is done, however long that takes.
			reply(w, http.StatusOK, s.Reload())
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// reply sends a value as JSON. It disconnects a client that does not read it.
func reply(w http.ResponseWriter, code int, v any) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stallTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, err error) { reply(w, code, failure{err.Error()}) }

// list sends sessions, one a line. If it cannot send all, it closes the connection without the end of the chunked body,
// by which clients know that a list is complete.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	filter := Filter{User: r.URL.Query().Get("user"), State: State(r.URL.Query().Get("state")),
		Network: r.URL.Query().Get("network")}
	if err := filter.Check(); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	encoder, deadline := json.NewEncoder(w), http.NewResponseController(w)
	end := time.Now().Add(listTimeout)
	networks, err := s.chosen(filter.Network)
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, n := range networks {
		n.Table.Each(func(client session.Session) bool {
			client = client.At(time.Now())
			// The context ends with the daemon, and when the client disconnects.
			if err = r.Context().Err(); err != nil || !filter.match(client) {
				return err == nil
			}
			deadline.SetWriteDeadline(earlier(time.Now().Add(s.stallAfter), end))
			err = encoder.Encode(asShown(client, n.Name))
			return err == nil
		})
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// chosen returns the network of a name; "": all.
func (s Answers) chosen(name string) ([]Network, error) {
	all := s.Networks()
	if name == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(n Network) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no network %q is served", name)
	}
	return all[i : i+1], nil
}

// networkOf returns the network to which an address belongs.
func (s Answers) networkOf(addr netip.Addr) (Network, error) {
	for _, n := range s.Networks() {
		if n.Has == nil || n.Has(addr) {
			return n, nil
		}
	}
	return Network{}, fmt.Errorf("%s is of no network that is served", addr)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Check refuses unknown states.
func (f Filter) Check() error {
	if f.State == "" || slices.Contains(States, f.State) {
		return nil
	}
	return fmt.Errorf("no state is called %q: there are %s, %s and %s", f.State, States[0], States[1], States[2])
}

func (f Filter) match(client session.Session) bool {
	return (f.User == "" || session.SameUser(f.User, client.User)) && (f.State == "" || f.State == client.State)
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	addr, err := netip.ParseAddr(r.PathValue("addr"))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	client, err := s.Find(addr)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	reply(w, http.StatusOK, client)
}

// readLogin decodes a LoginRequest.
func readLogin(r io.Reader) (LoginRequest, error) {
	var req LoginRequest
	if err := readRequest(r, &req); err != nil {
		return req, err
	}
	return req, req.Check()
}

// Check returns an error for a request that is invalid for any client.
func (r LoginRequest) Check() error {
	switch {
	case !r.Addr.IsValid() || r.Addr.IsLoopback():
		return errors.New("addr must be a client's address")
	case !isUser(r.User):
		return fmt.Errorf("user must be a name of visible characters, 1 to %d bytes", maxUserBytes)
	case r.MAC != "":
		if _, err := parseMAC(r.MAC); err != nil {
			return err
		}
	}
	return r.Limits.check()
}

// readLogout decodes a LogoutRequest.
func readLogout(r io.Reader) (LogoutRequest, error) {
	var req LogoutRequest
	if err := readRequest(r, &req); err != nil {
		return req, err
	}
	given := 0
	for _, set := range []bool{req.Addr.IsValid(), req.User != "", req.All} {
		if set {
			given++
		}
	}
	if given != 1 {
		return req, errors.New("give one of addr, user and all")
	}
	if req.ID != "" && !req.Addr.IsValid() {
		return req, errors.New("id is of the session of addr")
	}
	return req, nil
}

// readRequest decodes exactly one JSON value, with known fields only.
func readRequest(r io.Reader, target any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("reading the request: there is more than one value")
	}
	return nil
}

func isUser(s string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return s != "" && len(s) <= maxUserBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, hidden)
}
