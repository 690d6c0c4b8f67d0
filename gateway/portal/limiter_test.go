// Tests of the limiter, which bounds the connections of one client and of all clients together. start (world_test.go)
// serves a portal, whose table of clients is w.table. clientA and clientB are addresses of clients with leases;
// dialFrom connects from a client's address (namespace_test.go).

package portal

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"
)

// patientTimeout is long enough for busy machines.
const patientTimeout = time.Minute

// connect opens a client's connection to the portal.
func connect(t *testing.T, client netip.Addr) net.Conn {
	t.Helper()
	conn, err := dialFrom(client)(t.Context(), "tcp", portalAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connectTLS opens a client's connection to the portal over TLS.
func connectTLS(t *testing.T, client netip.Addr) net.Conn {
	t.Helper()
	conn, err := dialFrom(client)(t.Context(), "tcp", tlsAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: portalName})
}

// getOver requests the login page over a connection.
func getOver(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	fmt.Fprintf(conn, "GET /login HTTP/1.1\r\nHost: %s\r\n\r\n", portalAddr)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}

// wantRefused requires that the portal resets a client's connection.
func wantRefused(t *testing.T, client netip.Addr) {
	t.Helper()
	conn, err := dialFrom(client)(t.Context(), "tcp", portalAddr.String())
	if err != nil {
		return // reset before connect returned
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came over a connection of %s that there is no room for", n, client)
	}
}

// leasedClients returns clients with leases.
func leasedClients(w *world, n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = netip.AddrFrom4([4]byte{10, 1, 7, byte(i + 1)})
		w.table.lease(all[i])
	}
	return all
}

// nearEnd returns the portal's side of a connection over which the client has sent the text sends. No limiter counts
// it.
func nearEnd(t *testing.T, sends string) *limitedConn {
	t.Helper()
	l, err := Listen(t.Context(), portalAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Fprint(connect(t, clientA), sends)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{TCPConn: conn.(*net.TCPConn)}
	if sends != "" {
		await(t, "what the client sends", w.unread)
	}
	return &limitedConn{Conn: w, wire: w, fd: -1}
}

// TestOldest: the connection whose client has kept the portal waiting longest is closed first, if that was long enough.
// A connection with a request is never closed, nor one whose request the portal has not read yet.
func TestOldest(t *testing.T) {
	c := connLimiter{byFD: map[int32]*limitedConn{}}
	unread, slow, busy, idle := nearEnd(t, "GET "), nearEnd(t, ""), nearEnd(t, ""), nearEnd(t, "")
	for _, g := range []*limitedConn{unread, slow, busy, idle} {
		c.expects(g)
	}
	c.waitIn(idle, &c.idle)
	c.works(busy)
	begun := time.Now().Add(-time.Hour)
	for i, g := range []*limitedConn{unread, slow, busy, idle} {
		g.idleSince = begun.Add(time.Duration(i))
	}
	if g, after := c.oldest(begun); g != nil || after != idleEnough {
		t.Errorf("%p after %s makes room at once", g, after)
	}
	for _, want := range []*limitedConn{slow, idle, nil} {
		if g, _ := c.oldest(idle.idleSince.Add(idleEnough)); g != want {
			t.Errorf("%p makes room, want %p", g, want)
		}
	}
	if unread.in != &c.slow || unread.gone || !c.works(busy) || c.works(slow) {
		t.Error("one that the portal has not come to makes room, or one that makes room has a request")
	}
}

// TestIdleConnectionsMakeRoom: when all connections are in use, the portal closes an idle one for a new one, and
// refuses none.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const room = 4
	w := start(t, Config{MaxConns: room, waitAtMost: patientTimeout})
	clients := leasedClients(w, room+1)
	var open []net.Conn
	for _, c := range clients[:room] {
		conn := connect(t, c)
		getOver(t, conn)
		open = append(open, conn)
	}
	if resp := getOver(t, connect(t, clients[room])); resp.StatusCode != 200 {
		t.Errorf("the next client: %s", resp.Status)
	}
	kept := 0
	for _, conn := range open {
		fmt.Fprintf(conn, "GET /login HTTP/1.1\r\nHost: %s\r\n\r\n", portalAddr)
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			kept++
		}
	}
	if kept != room-1 {
		t.Errorf("%d of %d idle connections are kept, want all but one", kept, room)
	}
	if n := w.Stats().Turned; n != 0 {
		t.Errorf("%d connections were refused", n)
	}
}

// deciding opens a connection for each client and sends a login over it. The logins stay undecided: each call of decide
// decides one.
func deciding(t *testing.T, w *world, clients ...netip.Addr) (open []net.Conn, decide func()) {
	t.Helper()
	decided, before := make(chan struct{}, len(clients)), w.users.questions()
	w.users.answers(nil, func(ctx context.Context, _ int) {
		select {
		case <-decided:
		case <-ctx.Done():
		}
	})
	for i, c := range clients {
		s, _ := w.table.Get(c)
		form := url.Values{
			"token": {w.tokens.formToken(s.Key, time.Now())}, "username": {goodUser}, "password": {goodPassword}}
		over, host := connect, portalAddr.String()
		if w.cert != nil {
			over, host = connectTLS, portalName+":8443"
		}
		conn := over(t, c)
		fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: %d\r\n\r\n%s", host, len(form.Encode()), form.Encode())
		open = append(open, conn)
		await(t, "a login to be decided", func() bool { return w.users.questions() == before+i+1 })
	}
	return open, func() { decided <- struct{}{} }
}

// TestFullPortalLetsWait: when all connections have requests, a new one waits until one of them ends. A client that has
// its share of connections is refused at once.
func TestFullPortalLetsWait(t *testing.T) {
	const room = 4
	w := start(t, Config{MaxConns: room, MaxConnsPerClient: 1, waitAtMost: patientTimeout})
	clients := leasedClients(w, room+1)
	_, decide := deciding(t, w, clients[:room]...)
	wantRefused(t, clients[0])
	waiting := connect(t, clients[room])
	decide()
	if resp := getOver(t, waiting); resp.StatusCode != 200 {
		t.Errorf("who waited: %s", resp.Status)
	}
	if n := w.Stats().Turned; n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
}

// TestConnectionsAreNotKeptWhileOthersWait: while another client waits for a connection, the portal closes each
// connection after its answer.
func TestConnectionsAreNotKeptWhileOthersWait(t *testing.T) {
	w := start(t, Config{MaxConns: 1, waitAtMost: patientTimeout})
	clients := leasedClients(w, 2)
	first := connect(t, clients[0])
	if resp := getOver(t, first); resp.Close {
		t.Error("a connection is not kept though nobody waits")
	}
	second := connect(t, clients[1]) // open once the kernel has accepted it, and handled a little later
	for kept := true; kept && w.Stats().Turned == 0; {
		kept = !getOver(t, first).Close
	}
	if resp := getOver(t, second); resp.StatusCode != 200 {
		t.Errorf("who waited: %s", resp.Status)
	}
}

// TestWaiting: a new connection waits while other connections come, go or become idle. It is refused once none of them
// has moved for waitAtMost. That time is not counted anew for each queued connection.
func TestWaiting(t *testing.T) {
	stuck := func(moved time.Time) *connLimiter {
		return &connLimiter{
			max: 1, total: 1, waitAtMost: patientTimeout, changedAt: moved, clients: map[netip.Addr]int{clientA: 1}}
	}
	past := time.Now().Add(-2 * patientTimeout)
	for range 3 {
		if stuck(past).wait(t.Context().Done()) {
			t.Error("one waits though nobody leaves")
		}
	}
	c := stuck(time.Now())
	go c.uncount(clientA)
	if !c.wait(t.Context().Done()) || c.count(clientB) != admitted {
		t.Error("no room where somebody has left")
	}
	c = stuck(past)
	g := nearEnd(t, "")
	g.client, g.limiter = clientA, c
	c.expects(g)
	for c.total > 0 && c.wait(t.Context().Done()) {
	}
	if c.count(clientB) != admitted {
		t.Error("a connection that waits for its client makes no room")
	}
}

// TestFullPortalTurnsAway: in a full portal new connections are refused once no connection has opened or closed for
// waitAtMost.
func TestFullPortalTurnsAway(t *testing.T) {
	w := start(t, Config{MaxConns: 1})
	clients := leasedClients(w, 3)
	deciding(t, w, clients[0])
	wantRefused(t, clients[1])
	if n := w.Stats().Turned; n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	wantRefused(t, clients[2])
}

// TestEndsWhileOneWaits: the portal can be stopped while connections wait.
func TestEndsWhileOneWaits(t *testing.T) {
	w := start(t, Config{MaxConns: 1, waitAtMost: patientTimeout})
	clients := leasedClients(w, 2)
	deciding(t, w, clients[0])
	connect(t, clients[1])
	w.stop()
}
