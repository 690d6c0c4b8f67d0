package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/flowlog"
)

// get sends a request through a connection, and returns the answer's status line; "": there is none.
func get(conn net.Conn) string {
	fmt.Fprint(conn, "GET /login HTTP/1.1\r\nHost: x\r\n\r\n") // an error is one of the answer too
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line
}

// TestSlowClients: connections that send nothing take a bounded number of places, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	w := newWorld(t, 1)
	var slow []net.Conn
	for range 3 * maxConnsOfOne {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
		must(t, err)
		defer conn.Close()
		slow = append(slow, conn)
	}
	for _, conn := range slow[maxConnsOfOne:] { // those beyond the share of an address
		if line := get(conn); line != "" {
			t.Errorf("a connection beyond the share is answered %s", line)
		}
	}
	if n := w.Stats().TurnedAway; n != 2*maxConnsOfOne {
		t.Errorf("%d of %d connections beyond the share were turned away", n, 2*maxConnsOfOne)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	if a := w.send(client, "GET", "/login", "", nil); a.StatusCode != http.StatusOK {
		t.Errorf("another client is answered %s", a.Status)
	}
	for _, conn := range slow[:maxConnsOfOne] {
		if line := get(conn); !strings.Contains(line, "200") {
			t.Errorf("a connection within the share is answered %q", line)
		}
	}
}

// TestConnectionsOfOneHost: an IPv6 host has the share of its network, whatever addresses it takes.
func TestConnectionsOfOneHost(t *testing.T) {
	l := &limitedListener{server: newWorld(t, 0).Server, conns: map[netip.Addr]int{}}
	peer := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::%x", i/100, i)) }
	for i := range maxConnsOfOne + 1 {
		if l.count(peer(i)) != (i < maxConnsOfOne) {
			t.Errorf("connection %d of a network", i)
		}
	}
	if !l.count(peer(100)) {
		t.Error("another network has no place")
	}
	l.uncount(peer(0))
	if !l.count(peer(99)) {
		t.Error("a place that is free again is not given")
	}
}

// TestClientsOfNetworks: connections from clients' networks are closed.
func TestClientsOfNetworks(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) {
		c.IsClients = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.9") }
	})
	for _, from := range []struct {
		addr   net.IP
		answer string
		turned uint64
	}{{net.IPv4(127, 0, 0, 9), "", 1}, {net.IPv4(127, 0, 0, 10), "HTTP/1.1 200 OK\r\n", 1}} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.addr}}
		conn, err := dialer.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
		must(t, err)
		defer conn.Close()
		if line := get(conn); line != from.answer {
			t.Errorf("%s is answered %q", from.addr, line)
		}
		if n := w.Stats().TurnedAway; n != from.turned {
			t.Errorf("%s: %d connections were turned away", from.addr, n)
		}
	}
}

// TestGuessesAmongLogins: who knows one account's password gets no more guesses at another by it, from the same address
// and with another name's or a program's login in between, and the place of the last login is no exception.
func TestGuessesAmongLogins(t *testing.T) {
	w := newWorld(t, 1)
	w.as("ann", "GET", "/api/v1/account", nil) // from here ann logged in last
	for i := range 10 {
		a := w.send(plainClient, "GET", "/api/v1/account", "", func(r *http.Request) { r.SetBasicAuth("ann", fmt.Sprint(i)) })
		if a.StatusCode == http.StatusTooManyRequests {
			if a := w.as("bob", "GET", "/api/v1/account", nil); a.StatusCode != http.StatusOK {
				t.Errorf("bob must wait for the guesses at ann: %s", a.Status)
			}
			return
		}
		for _, name := range []string{"bob", "backup"} {
			if a := w.as(name, "GET", "/api/v1/account", nil); a.StatusCode != http.StatusOK {
				t.Fatalf("%s is answered %s", name, a.Status)
			}
		}
	}
	t.Error("ten guesses were checked, because another account logged in between them")
}

// TestCrossSiteSearch: a link of another site has nobody search, and be in the log for it.
func TestCrossSiteSearch(t *testing.T) {
	w := newWorld(t, 1)
	eve := w.logIn("eve")
	for _, path := range []string{"/whois", "/api/v1/whois"} {
		a := w.send(eve.client, "GET", path+"?endpoint=203.0.113.5:40321", "", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.SetBasicAuth("eve", "right")
		})
		if a.StatusCode != http.StatusForbidden {
			t.Errorf("%s is answered %s", path, a.Status)
		}
	}
	if e := w.entries(); len(e) != 1 {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestOneSearch: one search runs at a time, and one whose browser has gone ends and lets the next in.
func TestOneSearch(t *testing.T) {
	running := make(chan string)
	w := newWorld(t, 1, func(c *Config) {
		c.Whois = func(ctx context.Context, endpoint netip.AddrPort, _ time.Time) ([]flowlog.Search, error) {
			running <- endpoint.String()
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	p := person{Name: "eve", way: "page"}
	search := func(port uint16) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := w.whois(ctx, p, netip.AddrPortFrom(addrOf(1), port), time.Now())
			ended <- err
		}()
		return func() {
			t.Helper()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("search %d: %v", port, err)
			}
		}
	}
	first := search(1)
	<-running
	search(2)() // leaves while it waits
	third := search(3)
	first()
	if got := <-running; got != "10.0.0.1:3" {
		t.Errorf("%s is searched for after 10.0.0.1:1 and 2 have gone", got)
	}
	third()
}
