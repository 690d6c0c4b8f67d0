// Tests of the simple browser by which clients load pages. localNetwork is a client that shares the test's own network
// (login_test.go), and countingNetwork one that counts its connections.

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countingNetwork is a network that counts connections.
type countingNetwork struct {
	localNetwork
	dialled, open atomic.Int32
}

func (c *countingNetwork) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := c.localNetwork.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.dialled.Add(1)
	c.open.Add(1)
	return &openConn{Conn: conn, gone: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

type openConn struct {
	net.Conn
	gone func()
}

func (c *openConn) Close() error {
	c.gone()
	return c.Conn.Close()
}

// testSite serves pages of several kinds of length.
func testSite(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "plain ", r.Host) })
	mux.HandleFunc("/chunked", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one ")
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "two")
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "final")
	})
	mux.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "last")
	})
	mux.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/plain?by="+r.FormValue("user"), http.StatusSeeOther)
	})
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/long",
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", maxPage+1)) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func TestBrowser(t *testing.T) {
	srv := testSite(t)
	n := &countingNetwork{}
	b := &browser{net: n, keepAlive: true}
	get := func(path string) *answer {
		t.Helper()
		a, err := b.fetch(t.Context(), http.MethodGet, srv.URL+path, "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for path, want := range map[string]string{
		"/plain": "plain " + strings.TrimPrefix(srv.URL, "http://"), "/chunked": "one two", "/hints": "final",
		"/none": "404 page not found\n",
	} {
		if a := get(path); a.body != want {
			t.Errorf("%s is %q, want %q", path, a.body, want)
		}
	}
	a, err := b.fetch(t.Context(), http.MethodPost, srv.URL+"/form", "user=anna", field{"Content-Type",
		"application/x-www-form-urlencoded"})
	if err != nil {
		t.Fatal(err)
	}
	if to, err := a.location(); err != nil || to.String() != srv.URL+"/plain?by=anna" || a.text() != "303 See Other" {
		t.Errorf("the form leads to %v, %v, with %s", to, err, a.text())
	}
	if n := n.dialled.Load(); n != 1 {
		t.Errorf("%d connections for five requests, want 1", n)
	}
	if get("/close"); n.open.Load() != 0 {
		t.Error("a connection stays open that the server has taken leave of")
	}
	if a := get("/long"); len(a.body) != maxPage || n.open.Load() != 0 {
		t.Errorf("of a long page %d bytes are read and %d connections stay", len(a.body), n.open.Load())
	}
	get("/plain")
	if n.open.Load() != 1 {
		t.Errorf("%d connections are kept, want 1", n.open.Load())
	}
	if b.closeIdle(); n.open.Load() != 0 {
		t.Error("a connection stays open after leave")
	}
	single := &browser{net: n}
	before := n.dialled.Load()
	for range 2 {
		if _, err := single.fetch(t.Context(), http.MethodGet, srv.URL+"/plain", ""); err != nil {
			t.Fatal(err)
		}
	}
	if n.dialled.Load()-before != 2 || n.open.Load() != 0 {
		t.Errorf("without keeping, %d connections for 2 requests, %d open", n.dialled.Load()-before, n.open.Load())
	}
}

// TestBrowserHoldsOneConnection: who waits for an open file must not hold one.
func TestBrowserHoldsOneConnection(t *testing.T) {
	one, two := testSite(t), testSite(t)
	n := &countingNetwork{}
	b := &browser{net: n, keepAlive: true}
	for _, url := range []string{one.URL, two.URL, one.URL} {
		if _, err := b.fetch(t.Context(), http.MethodGet, url+"/plain", ""); err != nil {
			t.Fatal(err)
		}
		if n.open.Load() != 1 {
			t.Errorf("%d connections are open, want 1", n.open.Load())
		}
	}
}

// TestBrowserFailures: what is not a page is an error that says so, and ends.
func TestBrowserFailures(t *testing.T) {
	srv := testSite(t)
	b := &browser{net: &countingNetwork{}, keepAlive: true}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("patience is over"))
	defer cancel()
	if _, err := b.fetch(ctx, http.MethodGet, srv.URL+"/hang?secret", ""); err == nil ||
		!strings.HasSuffix(err.Error(), "/hang: patience is over") {
		t.Errorf("a page that does not come: %v", err)
	}
	for _, bad := range []string{"", "/x", "https://h/", "http://", "http://h:p/"} {
		if _, err := b.fetch(t.Context(), http.MethodGet, bad, ""); err == nil {
			t.Errorf("%q was asked for", bad)
		}
	}
	// Each connection is served one of these, and then closed.
	says := make(chan string, 8)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for text := range says {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, text)
			conn.Close()
		}
	}()
	defer close(says)
	ask := func(text string) (*answer, error) {
		says <- text
		return b.fetch(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", "")
	}
	if _, err := ask(""); !errors.Is(err, io.EOF) {
		t.Errorf("a server that hangs up: %v", err)
	}
	if _, err := ask("SSH-2.0\r\n\r\n"); err == nil {
		t.Error("what is no HTTP was taken for a page")
	}
	if _, err := ask("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"); err == nil {
		t.Error("half a page was taken for one")
	}
	if a, err := ask("HTTP/1.0 200 OK\r\n\r\nuntil the end"); err != nil || a.body != "until the end" {
		t.Errorf("a page without a length: %v, %v", a, err)
	}
	// The server closes the kept connection; the next request, a form too, goes over
	// a new one.
	if _, err := ask("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"); err != nil || b.idle == nil {
		t.Fatalf("%v, %v kept", err, b.idle)
	}
	says <- "HTTP/1.1 204 No Content\r\n\r\n"
	a, err := b.fetch(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/", "a=b")
	if err != nil || a.status != http.StatusNoContent {
		t.Errorf("after the server closed a kept connection: %v, %v", a, err)
	}
}
