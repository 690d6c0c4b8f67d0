package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The load of the tests. The defaults are low, so that a busy machine passes; use higher ones on an idle machine.
var (
	tcpMbps  = flag.Int("tcp-mbps", 100, "Mbit/s of TCP each way, through the gateway while its daemon dies; 0: none")
	udpMbps  = flag.Int("udp-mbps", 30, "Mbit/s of UDP each way, meanwhile")
	rounds   = flag.Int("rounds", 2, "how often the daemon is killed, restarted and replaced under load")
	loadTime = flag.Duration("load", 0, "how long the load goes on at least")

	predecessor = flag.String(
		"predecessor", "", "gatewayd of an earlier version, in a file of that name, to upgrade from first")
)

// Addresses of every world.
var (
	serverAddr  = netip.MustParseAddr("192.0.2.2")
	portalAddr  = "10.1.0.1:8080"
	neverLeased = netip.MustParseAddr("10.1.0.250")
)

// Most tests of this package run gatewayd as a process of its own in a world: a router with clients and a server, each
// in a network namespace. newWorld makes it, start starts the daemon, client adds a client with a lease, and
// client.logIn logs it in at the portal. sh runs a script, which fails the test if it fails; try returns the error. In
// scripts $ID-router, $ID-server and so on are the namespaces, and $DIR is the world's folder. The users' password is
// "right", see testdata/radius/users.

// world is a gateway's host with clients on one side and a server on the other, in namespaces of one test. The daemon
// is a separate process.
//
//	clients ── hub ── lan0 router wan0 ── s0 server
//
// The hub is a bridge with default sysctls. With -clients gateway lan0 is a bridge too, whose frames netfilter sees.
type world struct {
	t      testing.TB
	id     string
	Dir    string
	Pins   string // folder of the data path's pinned maps and programs
	Secret string // of RADIUS
	// Settings of the daemon, for the templates in testdata.
	Path   string // lines of [datapath], in place of pin_dir
	Lines  string // lines of [pppoe]; "": there is no PPPoE
	Pool   string // lines of [pppoe.pool]
	LAN    string // further lines of [lan]
	Wide   bool   // the LAN is 10.1.0.0/16 instead of /24
	Others bool   // another program leases addresses and answers DNS
	auth   *radiusServer
	acct   *radiusServer
	daemon *process
	made   int // number of clients
	hub    *netnstest.Space

	program string // gatewayd's file
	host    string // where the daemon runs; "": the router
}

var worlds atomic.Int64

// newWorld creates the namespaces and starts RADIUS servers, one for logins and one for accounting, but no daemon. All
// of it ends with the test.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newNetwork(t)
	w.plainTCP("server")
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	return w
}

// newNetwork creates the namespaces, without RADIUS servers and configuration.
func newNetwork(t testing.TB) *world {
	t.Helper()
	place := netnstest.Place("").OrDefault(t)
	w := &world{t: t, id: fmt.Sprint("w", worlds.Add(1)), Dir: t.TempDir(), Secret: "a secret of 24 characters"}
	w.Pins = "/sys/fs/bpf/" + w.id
	var err error
	w.program, err = exec.LookPath("gatewayd")
	must(t, err)
	router, hub, server := w.space("router"), w.space("hub"), w.space("server")
	w.hub = hub
	lan := netnstest.End{Name: "lan0"}
	if place == netnstest.OnGateway {
		router.Bridge(t, lan)
		router.Set(t, "bridge/bridge-nf-call-iptables", "1")
		lan.Name = "port0"
	}
	router.Veth(t, lan, hub, netnstest.End{Name: "lan"})
	if place == netnstest.OnGateway {
		router.Port(t, lan.Name, "lan0")
	}
	router.Veth(t, netnstest.End{Name: "wan0"}, server, netnstest.End{Name: "s0"})
	router.Enable(t, "lan0", netip.MustParsePrefix("10.1.0.1/24"))
	router.Enable(t, "wan0", netip.MustParsePrefix("192.0.2.1/24"))
	hub.Hub(t)
	hub.Plug(t, "lan")
	server.Enable(t, "s0", netip.PrefixFrom(serverAddr, 24))
	w.sh(`ip -n $ID-server route add 10.1.0.0/24 via 192.0.2.1 rto_min 5s`)
	router.Set(t, "ipv4/ip_forward", "1")
	return w
}

// space makes a host's namespace, which commands find by the world's ID and the host's name.
func (w *world) space(host string) *netnstest.Space {
	w.t.Helper()
	s := netnstest.NewSpace(w.t)
	s.Name(w.t, w.id+"-"+host)
	s.Set(w.t, "ipv6/conf/default/disable_ipv6", "1")
	return s
}

// plainTCP lets TCP in a namespace retransmit only lost packets, not those that a busy machine delayed.
func (w *world) plainTCP(host string) {
	w.sh(`nsenter --net=/run/netns/$ID-` + host +
		` sysctl -qw net.ipv4.tcp_sack=0 net.ipv4.tcp_early_retrans=0 net.ipv4.tcp_recovery=0`)
}

// sh runs a script and fails the test with what it printed.
func (w *world) sh(script string) string {
	w.t.Helper()
	out, err := w.try(script)
	if err != nil {
		w.t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return out
}

// try runs a script and returns what it printed.
func (w *world) try(script string) (string, error) {
	cmd := exec.Command("sh", "-ec", script)
	cmd.Env = append(os.Environ(), "ID="+w.id, "DIR="+w.Dir)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// inHost runs fn on a thread in a host's namespace: sockets it opens belong there.
func (w *world) inHost(host string, fn func() error) {
	w.t.Helper()
	must(w.t, w.inHostErr(host, fn))
}

// inHostErr is inHost that returns fn's error.
func (w *world) inHostErr(host string, fn func() error) error {
	return netnstest.In("/run/netns/"+w.id+"-"+host, fn)
}

// write makes a file of the world's folder from a template.
func (w *world) write(from, to string, data any) string {
	w.t.Helper()
	tmpl, err := template.ParseFiles(filepath.Join("testdata", from))
	must(w.t, err)
	var text bytes.Buffer
	must(w.t, tmpl.Execute(&text, data))
	path := filepath.Join(w.Dir, to)
	must(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(w.t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

var (
	must       = netnstest.Must
	eventually = netnstest.Await
)

// process is a program on a host of the world.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// spawn starts a program in the router's network. It ends with the test, also where that is killed.
func (w *world) spawn(log string, argv ...string) *process {
	w.t.Helper()
	return w.spawnAt(cmp.Or(w.host, "router"), log, argv...)
}

// spawnAt is spawn for any host. What the program prints is appended to the file log of the world's folder.
func (w *world) spawnAt(host, log string, argv ...string) *process {
	w.t.Helper()
	p := &process{log: filepath.Join(w.Dir, log), ended: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(w.t, err)
	defer out.Close()
	p.cmd = exec.Command("nsenter", append([]string{"--net=/run/netns/" + w.id + "-" + host}, argv...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	must(w.t, netnstest.Start(p.cmd))
	go func() { p.cmd.Wait(); close(p.ended) }()
	w.t.Cleanup(func() { p.signalAndWait(syscall.SIGKILL) })
	return p
}

// signalAndWait sends a signal and waits for the end.
func (p *process) signalAndWait(s syscall.Signal) {
	p.cmd.Process.Signal(s)
	<-p.ended
}

// output returns what the program has printed.
func (p *process) output() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// start starts the daemon and returns once it serves.
func (w *world) start() {
	w.t.Helper()
	w.startOf(w.program)
}

// startOf is start with another file of the program.
func (w *world) startOf(program string) {
	w.t.Helper()
	w.daemon = w.spawn("gatewayd.log", program, "run", "-c", filepath.Join(w.Dir, "gatewayd.toml"))
	eventually(w.t, "gatewayd starts", func() error {
		select {
		case <-w.daemon.ended:
			w.t.Fatalf("gatewayd ended:\n%s", w.daemon.output())
		default:
		}
		s, err := w.status()
		if err == nil && s.PID != w.daemon.cmd.Process.Pid {
			err = errors.New("another one answers")
		}
		return err
	})
}

// kill ends the daemon like a crash.
func (w *world) kill() { w.daemon.signalAndWait(syscall.SIGKILL) }

// replace kills the daemon, and starts another while the kernel still frees what the former one had open.
func (w *world) replace() {
	w.t.Helper()
	former := w.daemon
	must(w.t, former.cmd.Process.Kill())
	w.start()
	<-former.ended
}

func (w *world) control() (*control.Client, error) {
	return control.Dial(filepath.Join(w.Dir, "run", "control.sock"))
}

func (w *world) status() (control.Status, error) {
	c, err := w.control()
	if err != nil {
		return control.Status{}, err
	}
	return c.Status(context.Background())
}

// client is a client's machine: a network namespace of its own, with a lease from the daemon.
type client struct {
	w    *world
	host string
	addr netip.Addr
}

// addUnaddressed adds a client without an address.
func (w *world) addUnaddressed() *client {
	w.t.Helper()
	w.made++
	c := &client{w: w, host: fmt.Sprint("client", w.made)}
	space := w.space(c.host)
	space.Veth(w.t, netnstest.End{Name: "c0"}, w.hub, netnstest.End{Name: c.host})
	space.Enable(w.t, "c0")
	w.hub.Plug(w.t, c.host)
	space.AwaitUp(w.t, "c0")
	w.plainTCP(c.host)
	return c
}

// client adds a client and gets it a lease.
func (w *world) client() *client {
	w.t.Helper()
	c := w.addUnaddressed()
	c.lease()
	return c
}

// lease gets the client its address.
func (c *client) lease() {
	c.w.t.Helper()
	out := c.sh(c.udhcpc("-n"))
	m := regexp.MustCompile(`leased (\S+)`).FindStringSubmatch(out)
	if m == nil {
		c.w.t.Fatalf("no lease:\n%s", out)
	}
	c.addr = netip.MustParseAddr(m[1])
}

// udhcpc returns a command that requests a lease and prints "leased ADDRESS".
func (c *client) udhcpc(flags string) string {
	script := filepath.Join(c.w.Dir, "udhcpc")
	must(c.w.t, os.WriteFile(
		script, []byte("#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip addr replace $ip/24 dev $interface\n"+
			"ip route replace default via $router rto_min 5s\necho leased $ip\n"), 0o755))
	return "busybox udhcpc -i c0 -q " + flags + " -s " + script
}

// sh runs a command on the client's host, and fails the test if it fails.
func (c *client) sh(command string) string {
	c.w.t.Helper()
	return c.w.sh("nsenter --net=/run/netns/$ID-" + c.host + " " + command)
}

// try runs a command on the client's host, and returns what it printed.
func (c *client) try(command string) (string, error) {
	return c.w.try("nsenter --net=/run/netns/$ID-" + c.host + " " + command)
}

const curl = "curl -s --max-time 5 "

// logIn submits the portal's form, and tries again until there is an answer.
func (c *client) logIn(user string) control.Session {
	c.w.t.Helper()
	eventually(c.w.t, user+" logs in", func() error {
		token, err := c.token("login")
		if err != nil {
			return err
		}
		code, err := c.try(c.fillIn(token, user))
		if err == nil && code != "303" {
			err = fmt.Errorf("the form is answered with %s", code)
		}
		return err
	})
	return c.session()
}

// fillIn returns a command that sends the login form and prints the HTTP status.
func (c *client) fillIn(token, user string) string {
	return fmt.Sprintf(curl+`-o /dev/null -w '%%{http_code}' -d token=%s -d username=%s -d password=right http://%s/login`,
		token, user, portalAddr)
}

// logOut submits the form of the status page.
func (c *client) logOut() {
	c.w.t.Helper()
	user := c.session().User
	eventually(c.w.t, "log out", func() error {
		token, err := c.token("status")
		if err == nil {
			_, err = c.try(curl + `-o /dev/null -d token=` + token + ` -d username=` + user + ` http://` + portalAddr +
				`/logout`)
		}
		return err
	})
}

var tokenField = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token returns the token in a page's form.
func (c *client) token(page string) (string, error) {
	text, err := c.try(curl + "http://" + portalAddr + "/" + page)
	if err != nil {
		return "", err
	}
	token := tokenField.FindStringSubmatch(text)
	if token == nil {
		return "", fmt.Errorf("no form on the %s page:\n%s", page, text)
	}
	return token[1], nil
}

// session returns the daemon's entry of the client.
func (c *client) session() (s control.Session) {
	c.w.t.Helper()
	eventually(c.w.t, "gatewayd lists the client "+c.addr.String(), func() error {
		daemon, err := c.w.control()
		if err == nil {
			s, err = daemon.Session(context.Background(), c.addr)
		}
		return err
	})
	return s
}
