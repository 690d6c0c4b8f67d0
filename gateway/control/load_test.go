// Tests of the control socket with many or slow clients. control_test.go has the helpers: clients is a table of
// sessions in memory; authenticated(n) makes one of n sessions; start(t, table, stall) serves it, and gives a peer up
// that reads nothing for the time stall; dial connects; numbered(n) is the n-th address of 10.0.0.0/8.

package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// endlessTable yields clients until its reader stops, and reports that it has ended. Half-way it waits until the first
// client has arrived.
type endlessTable struct {
	clients
	n            int           // -1: no end
	arrived      chan struct{} // the reader closes it when it has the first client; nil: Each does not wait
	eachReturned chan struct{} // closed when Each returns
}

func (e *endlessTable) Each(yield func(session.Session) bool) {
	defer close(e.eachReturned)
	for i := 0; i != e.n; i++ {
		if e.arrived != nil && i == e.n/2 {
			<-e.arrived
		}
		client := session.Session{State: session.PreAuth, Hostname: strings.Repeat("x", 100)}
		client.Addr = numbered(i % (1 << 24))
		if !yield(client) {
			return
		}
	}
}

// TestSessionsStream: clients arrive while the table is still being read, so the daemon never has 100,000 of them in
// memory.
func TestSessionsStream(t *testing.T) {
	table := &endlessTable{n: 100_000, arrived: make(chan struct{}), eachReturned: make(chan struct{})}
	c := dial(t, start(t, table, time.Minute))
	rows := 0
	err := c.Sessions(t.Context(), Filter{}, func(client Session) error {
		if rows == 0 {
			close(table.arrived)
		}
		if client.Addr != numbered(rows) {
			t.Fatalf("row %d is %s", rows, client.Addr)
		}
		rows++
		return nil
	})
	if rows != 100_000 || err != nil {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// TestSlowReaderIsCutOff: a client that does not read is disconnected and does not delay others. It gets an error
// because its list is incomplete.
func TestSlowReaderIsCutOff(t *testing.T) {
	table := &endlessTable{n: -1, eachReturned: make(chan struct{})}
	path := start(t, table, time.Second)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := dial(t, path).Status(t.Context()); err != nil {
		t.Errorf("beside a slow reader: %v", err)
	}
	<-table.eachReturned
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("what was cut off ends with %v", err)
	}
}

// TestDisconnectEndsListing: the server stops reading the table when the client disconnects.
func TestDisconnectEndsListing(t *testing.T) {
	table := &endlessTable{n: -1, eachReturned: make(chan struct{})}
	c := dial(t, start(t, table, time.Minute))
	enough := errors.New("enough")
	if err := c.Sessions(t.Context(), Filter{}, func(Session) error { return enough }); err != enough {
		t.Error(err)
	}
	<-table.eachReturned
}

// TestTooManyConnections: connections beyond the limit are refused at once, and accepted again when others have closed.
func TestTooManyConnections(t *testing.T) {
	path := start(t, authenticated(1), stallTimeout)
	var idle []net.Conn
	for range maxConnections {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	refused, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	resp, err := http.ReadResponse(bufio.NewReader(refused), nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, conn := range idle {
		conn.Close()
	}
	// The server learns of the closed connections one after the other.
	for {
		c, err := Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Status(t.Context())
		if err == nil {
			break
		}
		if !strings.HasSuffix(err.Error(), "try again") {
			t.Fatal(err)
		}
	}
}

// TestEndWhileServing: a request in progress does not keep the daemon from ending.
func TestEndWhileServing(t *testing.T) {
	path := t.TempDir() + "/c.sock"
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	table := &endlessTable{n: -1, eachReturned: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, Single(Network{Table: table}, func() Status { return Status{} })) }()
	c := dial(t, path)
	err = c.Sessions(t.Context(), Filter{}, func(Session) error { stop(); return nil })
	if err == nil || !strings.Contains(err.Error(), "it is incomplete") {
		t.Errorf("a list without end: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Dial(path); !errors.Is(err, ErrNotRunning) {
		t.Error(err)
	}
}

// FuzzRequest: the answer to any request is JSON or a refusal, and only valid requests reach the table.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/status", "")
	f.Add("GET", "/v1/sessions?user=ann&state=leased", "")
	f.Add("GET", "/v1/sessions/10.0.0.1", "")
	f.Add("POST", "/v1/login",
		`{"addr":"10.0.0.1","user":"x","limits":{"session_timeout_seconds":1e9,"up_bps":18446744073709551615}}`)
	f.Add("POST", "/v1/logout", `{"user":"ann"}`)
	f.Add("POST", "/v1/logout", `{"all":true} {"all":true}`)
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequest(method, "http://x", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil {
			return
		}
		table := authenticated(3)
		w := httptest.NewRecorder()
		(&server{Single(Network{Table: table}, func() Status { return Status{} }), stallTimeout}).routes().ServeHTTP(w, r)
		if w.Code >= 400 && !strings.HasPrefix(w.Body.String(), `{"error":"`) {
			t.Errorf("%s %s: %d %q", method, target, w.Code, w.Body)
		}
		for _, client := range table.all {
			if l := client.Limits; l.SessionTimeout < 0 || l.IdleTimeout < 0 || client.State == session.Authenticated &&
				!isUser(client.User) {
				t.Errorf("%s %s %s: %+v", method, target, body, client)
			}
		}
	})
}

// FuzzClient: the client returns after any answer of a server.
func FuzzClient(f *testing.F) {
	f.Add(200, `{"addr":"10.0.0.1"}`+"\n"+`{"addr":"10.0.0.2"}`)
	f.Add(500, `{"error":"x"}`)
	f.Add(200, "{")
	f.Fuzz(func(t *testing.T, code int, body string) {
		if code < 200 || code > 999 {
			return
		}
		c := &Client{http: &http.Client{Transport: answer{code, body}}}
		err := c.Sessions(t.Context(), Filter{}, func(Session) error { return nil })
		if code != http.StatusOK && err == nil {
			t.Errorf("%d %q: no error", code, body)
		}
	})
}

// answer is a server that gives every request the same answer.
type answer struct {
	code int
	body string
}

// RoundTrip implements http.RoundTripper.
func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.WriteHeader(a.code)
	io.WriteString(w, a.body)
	return w.Result(), nil
}

// BenchmarkSessions lists 100,000 clients over the socket.
func BenchmarkSessions(b *testing.B) {
	path := b.TempDir() + "/c.sock"
	s, err := Listen(path)
	if err != nil {
		b.Fatal(err)
	}
	table := authenticated(100_000)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, Single(Network{Table: table}, func() Status { return Status{} })) }()
	c, err := Dial(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		rows := 0
		if err := c.Sessions(b.Context(), Filter{}, func(Session) error { rows++; return nil }); err != nil ||
			rows != len(table.all) {
			b.Fatal(rows, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
