// Tests of clients that are slow to send or to read. start (world_test.go) serves a portal over HTTP at portalAddr and
// over TLS at tlsAddr. connect opens a client's connection, getOver asks for the login page over it, and deciding
// (limiter_test.go) opens connections whose logins the authenticator has not decided yet.

package portal

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// slowClients are ways to have the portal wait, each over a connection to one of its ports.
var slowClients = map[string]struct {
	secure bool
	do     func(*testing.T, net.Conn)
}{
	"nothing at all":              {},
	"the first byte of a request": {do: sending("G")},
	"a part of a header":          {do: sending("GET /login HTTP/1.1\r\nHo")},
	"a request, and a byte":       {do: askingAnd("G")},
	"a request, and a line":       {do: askingAnd("GET /login HTTP/1.1\r\n")},
	"a form without its end":      {do: sending(unfinishedForm)},
	"a request, and such a form":  {do: askingAnd(unfinishedForm)},
	"a form for another site":     {do: sending(strings.Replace(unfinishedForm, "10.1.0.1", "192.0.2.1", 1))},
	"answers that are not read":   {do: deaf},
	"a part of a handshake":       {secure: true, do: sending("\x16\x03\x01")},
	"a handshake":                 {secure: true, do: overTLS("")},
	"a part of a header over TLS": {secure: true, do: overTLS("GET /login HTTP/1.1\r\nHo")},
	"a form without end, over TLS": {
		secure: true, do: overTLS(strings.Replace(unfinishedForm, "10.1.0.1:8080", "portal.example:8443", 1))},
}

const unfinishedForm = "POST /login HTTP/1.1\r\nHost: 10.1.0.1:8080\r\n" +
	"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nusername=ann"

func sending(text string) func(*testing.T, net.Conn) {
	return func(_ *testing.T, conn net.Conn) { fmt.Fprint(conn, text) }
}

func askingAnd(text string) func(*testing.T, net.Conn) {
	return func(t *testing.T, conn net.Conn) { getOver(t, conn); fmt.Fprint(conn, text) }
}

func overTLS(text string) func(*testing.T, net.Conn) {
	return func(t *testing.T, conn net.Conn) {
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: portalName})
		if err := c.Handshake(); err != nil {
			t.Error(err)
		}
		fmt.Fprint(c, text)
	}
}

// deaf asks and asks, and reads no answer.
func deaf(t *testing.T, conn net.Conn) {
	conn.(*net.TCPConn).SetReadBuffer(2048)
	go func() {
		for err := error(nil); err == nil; {
			_, err = fmt.Fprint(conn, strings.Repeat("GET /login HTTP/1.1\r\nHost: 10.1.0.1:8080\r\n\r\n", 100))
		}
	}()
}

// TestSlowClientsMakeRoom: a connection whose client has the portal wait makes room for one of another client, however
// it does that, and one with a request that is being decided never does.
func TestSlowClientsMakeRoom(t *testing.T) {
	files, _ := writeCertificate(t, t.TempDir(), portalName, 1)
	w := start(t, Config{Name: portalName, TLS: files, MaxConns: len(slowClients) + 1})
	clients := leasedClients(w, 2*len(slowClients)+1)
	first, decide := deciding(t, w, clients[0])
	var slow []net.Conn
	for name, c := range slowClients {
		to := portalAddr
		if c.secure {
			to = tlsAddr
		}
		conn, err := dialFrom(clients[1+len(slow)])(t.Context(), "tcp", to.String())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { conn.Close() })
		if slow = append(slow, conn); c.do != nil {
			c.do(t, conn)
		}
	}
	// Those that come keep their places, so that each displaces one.
	_, decideAll := deciding(t, w, clients[1+len(slow):]...)
	if n := w.Stats().Turned; n != 0 {
		t.Errorf("%d connections were refused", n)
	}
	for _, conn := range slow {
		conn.SetReadDeadline(time.Now().Add(patientTimeout))
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Errorf("one is open still: %v", err)
		}
	}
	decide()
	if head := readHead(t, first[0]); !strings.HasPrefix(head, "HTTP/1.1 303 ") {
		t.Errorf("the request that was being decided is answered with %q", head)
	}
	for range slow {
		decideAll()
	}
}

// TestAnswersArrive: an answer arrives whole although its client sends more than the portal reads.
func TestAnswersArrive(t *testing.T) {
	files, _ := writeCertificate(t, t.TempDir(), portalName, 1)
	start(t, Config{Name: portalName, TLS: files})
	const much = 200_000
	form := func(host string) string {
		return fmt.Sprintf("POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: %d\r\n\r\n", host, 2*much) + strings.Repeat("x", much)
	}
	header := "GET / HTTP/1.1\r\nHost: 10.1.0.1\r\nCookie: " + strings.Repeat("x", much)
	for name, c := range map[string]struct {
		secure, overTLS bool
		send, want      string
	}{
		"a form":           {send: form("10.1.0.1:8080"), want: " 303 "},
		"a form over TLS":  {secure: true, overTLS: true, send: form("portal.example:8443"), want: " 413 "},
		"a header":         {send: header, want: " 431 "},
		"HTTP without TLS": {secure: true, send: header[:maxHeaderBytes], want: "This port speaks HTTPS."},
		"no HTTP":          {secure: true, send: "\x00\x01\x02\x03\x04\x05\x06"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, clientA)
			if c.secure {
				raw, err := dialFrom(clientA)(t.Context(), "tcp", tlsAddr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				conn = raw
			}
			if c.overTLS {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: portalName})
			}
			go fmt.Fprint(conn, c.send)
			conn.SetReadDeadline(time.Now().Add(patientTimeout))
			got, err := io.ReadAll(conn)
			if err != nil || !strings.Contains(string(got), c.want) || c.want == "" && bytes.Contains(got, []byte("HTTP")) {
				t.Errorf("%.300q, %v", got, err)
			}
		})
	}
}

// TestHandshakeEnds: a client that does not read what the portal has to say to shake hands loses its connection.
func TestHandshakeEnds(t *testing.T) {
	defer func(former time.Duration) { handshakeTimeout = former }(handshakeTimeout)
	handshakeTimeout = 100 * time.Millisecond
	files, _ := writeCertificate(t, t.TempDir(), portalName, 1)
	text, err := os.ReadFile(files.Cert)
	if err == nil { // more than there is room for
		err = os.WriteFile(files.Cert, bytes.Repeat(text, 1<<20/len(text)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	const room = "/proc/sys/net/ipv4/tcp_wmem"
	usual, err := os.ReadFile(room)
	if err == nil {
		err = os.WriteFile(room, []byte("4096 4096 4096"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(room, usual, 0)
	start(t, Config{Name: portalName, TLS: files})
	conn, err := dialFrom(clientA)(t.Context(), "tcp", tlsAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(2048)
	var hello bytes.Buffer
	_ = tls.Client(recorded{conn, &hello}, &tls.Config{InsecureSkipVerify: true, ServerName: portalName}).Handshake()
	conn.Write(hello.Bytes())
	awaitIdle(t)
}

// recorded is a connection whose writes are recorded instead, and over which nothing comes.
type recorded struct {
	net.Conn
	written *bytes.Buffer
}

func (r recorded) Write(p []byte) (int, error) { return r.written.Write(p) }
func (r recorded) Read([]byte) (int, error)    { return 0, io.EOF }

// TestCountedUntilClosed: a connection counts until it is closed.
func TestCountedUntilClosed(t *testing.T) {
	g := nearEnd(t, "")
	g.client, g.limiter = clientA,
		&connLimiter{max: 1, maxPerClient: 9, clients: map[netip.Addr]int{}, byFD: map[int32]*limitedConn{}}
	g.limiter.count(clientA)
	g.limiter.expects(g)
	closed := 0
	g.Conn = closing{g.Conn, func() {
		if closed++; g.limiter.count(clientB) != limitReached {
			t.Error("there is room while it is open")
		}
	}}
	for range 2 { // net/http closes twice
		g.Close()
	}
	if g.limiter.total != 0 || g.limiter.longest() != nil || closed != 1 {
		t.Errorf("%d connections are open, and it was closed %d times", g.limiter.total, closed)
	}
}

// closing is a connection whose Close tells.
type closing struct {
	net.Conn
	tell func()
}

func (c closing) Close() error { c.tell(); return c.Conn.Close() }
