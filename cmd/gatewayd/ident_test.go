package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of the ident service (RFC 1413): a host of the WAN, an identHost, to which a client has connected asks the
// client's port 113 for the user of the connection. gatewayd answers in the client's place.

var asks = flag.Int("asks", 100, "queries whose times are logged")

// proftpd asks for the user of each connection, and logs what it is told.
const proftpd = `ServerType standalone
Port 21
UseIPv6 off
User root
Group root
LoadModule mod_ident.c
IdentLookups on
UseReverseDNS off
RequireValidShell off
ScoreboardFile none
PidFile %[1]s/proftpd.pid
DelayEngine off
LogFormat ident "%%a %%l"
ExtendedLog %[1]s/asked.log AUTH ident
SystemLog %[1]s/proftpd.log
`

// identify configures the gateway to answer queries; more is further lines of [ident].
func (w *world) identify(more string) {
	w.configure("[ident]\nenabled = true\n" + more)
}

// TestIdent: the log of proftpd, an FTP server that asks for users, names the right users of two clients, with both
// methods of [ident]. One of the clients runs an ident server of its own that lies.
func TestIdent(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"nat", "masquerade"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.identify(`method = "` + method + `"`)
			if method == "masquerade" {
				w.configure("[nat]\nmasquerade = true")
			}
			conf := filepath.Join(w.Dir, "proftpd.conf")
			must(t, os.WriteFile(conf, fmt.Appendf(nil, proftpd, w.Dir), 0o600))
			w.spawnAt("server", "proftpd.out", "proftpd", "-n", "-c", conf)
			w.start()
			ann, fixed := w.client(), w.client()
			ann.logIn("ann")
			fixed.logIn("frugal")
			w.spawnAt(ann.host, "liar.log", "busybox", "nc", "-lk", "-p", "113", "-e", "/bin/echo",
				"1 , 1 : USERID : UNIX : liar")
			users := map[string]*client{"ann": ann, "frugal": fixed}
			var asked sync.WaitGroup
			for _, c := range users { // both at once
				asked.Go(func() { c.try("curl -s --max-time 60 ftp://nobody:wrong@192.0.2.2/") })
			}
			asked.Wait()
			text, err := os.ReadFile(filepath.Join(w.Dir, "asked.log"))
			must(t, err)
			var want []string
			for user, c := range users {
				from := "192.0.2.1" // the address of all clients
				if method == "nat" {
					from = c.addr.String()
				}
				want = append(want, from+" "+user)
			}
			got := strings.Split(strings.TrimSpace(string(text)), "\n") // two lines a login: for USER and for PASS
			slices.Sort(got)
			slices.Sort(want)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("proftpd was told %q, want %q", got, want)
			}
		})
	}
}

// identHost is a host on the WAN, such as an IRC server: clients connect to it, and it asks their port 113 who they are
// (RFC 1413).
type identHost struct {
	w        *world
	addr     string
	address  string // to which it sends queries; "": the client's
	listener net.Listener

	lastConn net.Conn // this host's end of the last connection
}

// identHost returns a host of the WAN that has an address of the server.
func (w *world) identHost(addr string) *identHost {
	w.t.Helper()
	a := &identHost{w: w, addr: addr}
	w.inHost("server", func() (err error) {
		a.listener, err = net.Listen("tcp4", net.JoinHostPort(addr, "5000"))
		return err
	})
	w.t.Cleanup(func() { a.listener.Close() })
	return a
}

// connect connects a client to an identHost, which has accepted the connection when connect returns.
func (c *client) connect(to *identHost) *net.TCPConn {
	c.w.t.Helper()
	var near net.Conn
	c.w.inHost(c.host, func() (err error) {
		near, err = net.DialTimeout("tcp4", to.listener.Addr().String(), 20*time.Second)
		return err
	})
	far, err := to.listener.Accept()
	must(c.w.t, err)
	c.w.t.Cleanup(func() { near.Close(); far.Close() })
	to.lastConn = far
	return near.(*net.TCPConn)
}

// dial connects to a client's port 113.
func (a *identHost) dial(c *client) (conn net.Conn, err error) {
	a.w.inHost("server", func() error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.addr)}, Timeout: 20 * time.Second}
		conn, err = d.Dial("tcp4", net.JoinHostPort(cmp.Or(a.address, c.addr.String()), "113"))
		return nil
	})
	if err == nil {
		a.w.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// query sends a line and returns the reply.
func (a *identHost) query(c *client, line string) (string, error) {
	conn, err := a.dial(c)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(conn, line); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}

// queryAbout returns the query about a client's connection: the client's port and the server's.
func queryAbout(c *net.TCPConn) string {
	return fmt.Sprintf("%d,%d\r\n", c.LocalAddr().(*net.TCPAddr).Port, c.RemoteAddr().(*net.TCPAddr).Port)
}

// lastQuery returns the query about the last connection, with the client's port as this host sees it: NAT may have
// changed it.
func (a *identHost) lastQuery() string {
	return fmt.Sprintf(
		"%d,%d\r\n", a.lastConn.RemoteAddr().(*net.TCPAddr).Port, a.lastConn.LocalAddr().(*net.TCPAddr).Port)
}

// expectReply sends a query until the reply ends with an answer.
func (a *identHost) expectReply(c *client, line, answer string) {
	a.w.t.Helper()
	eventually(a.w.t, "the reply to "+strings.TrimSpace(line)+" is "+answer, func() error {
		reply, err := a.query(c, line)
		if err == nil && !strings.HasSuffix(reply, " : "+answer+"\r\n") {
			err = fmt.Errorf("%q", reply)
		}
		return err
	})
}

// TestIdentAnswers: a host that has a connection with a client gets the user of the session in which the connection
// began, also after the daemon was killed. Other hosts, and queries about other connections, get no user.
func TestIdentAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.identify("rate = 10000\nhidden_of = [\"frugal\"]")
	w.sh(`ip -n $ID-server addr add 192.0.2.3/24 dev s0`)
	w.start()
	c := w.client()
	c.logIn("ann")
	w.spawnAt(c.host, "liar.log", "busybox", "nc", "-lk", "-p", "113", "-e", "/bin/echo", "1 , 1 : USERID : UNIX : liar")
	server, other := w.identHost("192.0.2.2"), w.identHost("192.0.2.3")
	conn := c.connect(server)
	const none = "ERROR : NO-USER"
	server.expectReply(c, queryAbout(conn), "USERID : UNIX : ann")
	var times []time.Duration
	for range *asks {
		began := time.Now()
		if reply, err := server.query(c, queryAbout(conn)); err != nil || !strings.HasSuffix(reply, " : ann\r\n") {
			t.Fatalf("%q, %v", reply, err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	t.Logf("%d queries from connecting to the end of the reply: median %v, p99 %v", *asks, times[*asks/2],
		times[*asks*99/100])
	other.expectReply(c, queryAbout(conn), none)
	for _, line := range []string{"\r\n", "who\r\n", "0,23\r\n", "70000 , 5000\r\n", strings.Repeat("1", 2000)} {
		server.expectReply(c, line, "ERROR : INVALID-PORT")
	}
	server.expectReply(c, "1,5000\r\n", none)

	closed := c.connect(server)
	server.expectReply(c, queryAbout(closed), "USERID : UNIX : ann")
	closed.SetLinger(0) // RST
	closed.Close()
	server.expectReply(c, queryAbout(closed), none)

	w.kill()
	if conn, err := server.dial(c); err == nil {
		t.Errorf("port 113 of the client is open without a daemon: %v", conn.RemoteAddr())
	}
	w.start()
	server.expectReply(c, queryAbout(conn), "USERID : UNIX : ann")

	c.logOut()
	server.expectReply(c, queryAbout(conn), none)
	c.logIn("frugal")
	server.expectReply(c, queryAbout(conn), none)
	server.expectReply(c, queryAbout(c.connect(server)), "ERROR : HIDDEN-USER")
}

// TestIdentFlood: while a host holds many silent connections to port 113, and after another has asked about one port in
// 131, queries are still answered, with both methods.
func TestIdentFlood(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"nat", "masquerade"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			identFlood(t, method)
		})
	}
}

// identFlood is TestIdentFlood for a method. Answers name users by tokens.
func identFlood(t *testing.T, method string) {
	w := newWorld(t)
	w.identify("rate = 10000\nanswer = \"token\"\nmethod = \"" + method + "\"")
	w.sh(`ip -n $ID-server addr add 192.0.2.3/24 dev s0`)
	if method == "masquerade" {
		w.configure("[nat]\nmasquerade = true")
	}
	w.start()
	c := w.client()
	c.logIn("ann")
	server, flooder := w.identHost("192.0.2.2"), w.identHost("192.0.2.3")
	conn := c.connect(server)
	original := queryAbout(conn)
	if method == "masquerade" {
		server.address, flooder.address = "192.0.2.1", "192.0.2.1"
		original = server.lastQuery()
	}
	near, _, _ := strings.Cut(original, ",")
	for range 100 { // silent
		_, err := flooder.dial(c)
		must(t, err)
	}
	for port := 1; port <= 65535; port += 131 {
		if reply, err := server.query(c, fmt.Sprintf("%d,%d\r\n", port, 5000)); err != nil ||
			strings.Contains(reply, "USERID") && fmt.Sprint(port) != near {
			t.Fatalf("port %d: %q, %v", port, reply, err)
		}
	}
	reply, err := server.query(c, original)
	must(t, err)
	_, token, found := strings.Cut(strings.TrimSpace(reply), "USERID : OTHER : ")
	plain, err := base64.RawURLEncoding.DecodeString(token)
	if !found || err != nil || bytes.Contains(plain, []byte("ann")) {
		t.Fatalf("%q, %v", reply, err)
	}
	if out := w.sh("gatewayd ident-token --config $DIR/gatewayd.toml " + token); !strings.Contains(out, "ann") ||
		!strings.Contains(out, c.addr.String()) {
		t.Errorf("the token is of %q", out)
	}
	st, err := w.status()
	must(t, err)
	if st.Ident["throttled"] < 50 || st.Ident["answer"] == 0 || st.Ident["no-user"] < 400 {
		t.Errorf("counted: %v", st.Ident)
	}
	if method == "nat" && !strings.Contains(st.Datapath, "redirect") {
		t.Errorf("ident keeps the data path from redirecting: %s: %s", st.Datapath, st.Why)
	}
}

// TestIdentOfSubscribers: the answer names the user of a PPPoE session too.
func TestIdentOfSubscribers(t *testing.T) {
	t.Parallel()
	w := newLines(t, "echo = \"1s\"\necho_failures = 60\n[ident]\nenabled = true")
	c := w.onLine("ann")
	server := w.identHost("192.0.2.2")
	server.expectReply(c, queryAbout(c.connect(server)), "USERID : UNIX : ann")
}

// TestIdentBehindSubscribers: queries about a network behind a PPPoE session get the session's user, whatever a host in
// that network answers.
func TestIdentBehindSubscribers(t *testing.T) {
	t.Parallel()
	w := newLines(t, "echo = \"1s\"\necho_failures = 60\n[ident]\nenabled = true")
	w.sh("ip -n $ID-server route replace default via 192.0.2.1")
	c := w.onLine("routed")
	c.sh("ip addr add 203.0.113.9/32 dev ppp0")
	c.sh("ip route replace default dev ppp0 src 203.0.113.9")
	w.spawnAt(c.host, "liar.log", "busybox", "nc", "-lk", "-p", "113", "-e", "/bin/echo", "1 , 1 : USERID : UNIX : liar")
	c.addr = netip.MustParseAddr("203.0.113.9")
	server := w.identHost("192.0.2.2")
	conn := c.connect(server)
	if conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr() != c.addr {
		t.Fatalf("connected from %s", conn.LocalAddr())
	}
	server.expectReply(c, queryAbout(conn), "USERID : UNIX : routed")
	w.kill()
	if conn, err := server.dial(c); err == nil {
		t.Errorf("port 113 of the network is open without a daemon: %v", conn.RemoteAddr())
	}
	w.start()
	server.expectReply(c, queryAbout(conn), "USERID : UNIX : routed")
}
