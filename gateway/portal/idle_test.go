// Tests of connections on which the client is silent between two requests: the portal keeps them without a goroutine.
// start (world_test.go) serves a portal over HTTP at portalAddr and over TLS at tlsAddr; dialFrom and connect open a
// connection from a client's address, such as clientA.

package portal

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitIdle waits until net/http has no connection.
func awaitIdle(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	await(t, "all connections to be idle", func() bool {
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "net/http.(*conn).serve(")
	})
}

// TestIdleConnections: a connection that was idle is answered again, however its next requests arrive, and in order.
func TestIdleConnections(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		start(t, Config{})
		asksInParts(t, portalAddr, portalAddr.String(), func(c net.Conn) net.Conn { return c })
	})
	t.Run("TLS", func(t *testing.T) {
		files, _ := writeCertificate(t, t.TempDir(), portalName, 1)
		start(t, Config{Name: portalName, TLS: files})
		asksInParts(t, tlsAddr, portalName+":8443", func(c net.Conn) net.Conn {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: portalName})
		})
	})
}

// asksInParts sends requests in parts, each of which is a record of its own over TLS.
func asksInParts(t *testing.T, addr netip.AddrPort, host string, over func(net.Conn) net.Conn) {
	wire, err := dialFrom(clientA)(t.Context(), "tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	held := &batchedConn{Conn: wire}
	conn := over(held)
	from := bufio.NewReader(conn)
	wants := func(status int) {
		t.Helper()
		answer, err := http.ReadResponse(from, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
		}
		if err != nil || answer.StatusCode != status {
			t.Fatalf("answered with %+v, %v, want %d", answer, err, status)
		}
	}
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	one := get("/login")
	for _, cut := range []int{len(one), 1, 3, 4, strings.Index(one, "\n") + 1, len(one) - 1} {
		fmt.Fprint(conn, one[:cut])
		fmt.Fprint(conn, one[cut:])
		wants(200)
		awaitIdle(t)
	}
	line := strings.Index(one, "\n") + 1
	for _, rest := range []int{0, 1, 3, 4, line, len(one) - 1} { // two and a part arrive together
		held.batching = true
		for _, record := range []string{get("/nothing"), one, one[:rest]} {
			fmt.Fprint(conn, record)
		}
		held.release()
		wants(404)
		wants(200)
		fmt.Fprint(conn, one[rest:])
		wants(200)
		awaitIdle(t)
	}
}

// batchedConn is a connection whose writes can be sent as one packet.
type batchedConn struct {
	net.Conn
	batching bool
	packet   []byte
}

func (h *batchedConn) Write(b []byte) (int, error) {
	if h.batching {
		h.packet = append(h.packet, b...)
		return len(b), nil
	}
	return h.Conn.Write(b)
}

func (h *batchedConn) release() {
	h.Conn.Write(h.packet)
	h.batching, h.packet = false, nil
}

// TestIdleConnectionsEnd: idle connections are closed after idleTimeout and not before; one whose client has closed it
// is closed at once, and an event of one that is gone is nobody's.
func TestIdleConnectionsEnd(t *testing.T) {
	c := &connLimiter{max: 9, maxPerClient: 9, clients: map[netip.Addr]int{}, byFD: map[int32]*limitedConn{}}
	idle, err := newIdleConns(c)
	l, bad := Listen(t.Context(), portalAddr)
	if err = errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	limited := &limitedListener{Listener: l, limiter: c, idle: idle, ctx: t.Context()}
	defer l.Close()
	accept := func() (near *limitedConn, far net.Conn) {
		t.Helper()
		far = connect(t, clientA)
		conn, err := limited.Accept()
		if err == nil {
			near = conn.(*idleableConn).limitedConn
			err = idle.add(near)
		}
		if err != nil {
			t.Fatal(err)
		}
		return near, far
	}
	first, _ := accept()
	idle.expire(first.idleSince.Add(idleTimeout - 1))
	if c.total != 1 || c.idle.Len() != 1 {
		t.Errorf("closed too early: %d connections are open, %d idle", c.total, c.idle.Len())
	}
	idle.expire(first.idleSince.Add(idleTimeout))
	if c.total != 0 || c.idle.Len() != 0 {
		t.Errorf("not closed: %d connections are open, %d idle", c.total, c.idle.Len())
	}
	second, far := accept()
	if idle.connOf(unix.EpollEvent{Fd: second.fd, Pad: first.turn}) != nil {
		t.Error("an event of the connection that had the descriptor before is taken for one of this")
	}
	far.Close()
	await(t, "its end", second.wire.ended)
	third, far := accept()
	fmt.Fprint(far, "x")
	back, err := idle.Accept()
	if err != nil || back.(*idleableConn).limitedConn != third {
		t.Fatalf("not the connection over which something has come: %v", err)
	}
	if c.total != 1 {
		t.Errorf("%d connections are open, want the one over which something has come", c.total)
	}
	back.Close()
	_, far = accept()
	idle.Close()
	far.SetReadDeadline(time.Now().Add(patientTimeout))
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection that was idle at the end: %v", err)
	}
}
