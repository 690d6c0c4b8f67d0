package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var (
	sh   = netnstest.Run
	try  = netnstest.Try
	must = netnstest.Must
)

// network creates a client's and a server's namespace with this one between them. The client is at a hub, as is the
// LAN's interface.
func network(t testing.TB) {
	t.Helper()
	sh(t, netnstest.Up+`ip netns add client; ip netns add hub; ip netns add server; ip netns exec hub sh -c '`+
		netnstest.NoIPv6+`'
ip link add lan0 type veth peer name lan netns hub
ip -n client link add c0 type veth peer name c1 netns hub
ip link add wan0 type veth peer name s0 netns server
ip addr add 10.1.0.1/24 dev lan0; ip addr add 192.0.2.1/24 dev wan0; ip link set lan0 up; ip link set wan0 up
ip -n client link set lo up; ip -n client link set c0 up
ip netns exec hub sh -ec '`+netnstest.Hub+`hub; plug lan c1'
ip -n server link set lo up; ip -n server link set s0 up; ip -n server addr add 192.0.2.2/24 dev s0; ip -n server route add default via 192.0.2.1
up lan0 wan0; ip netns exec client sh -ec '`+netnstest.Up+`up c0' `)
	t.Cleanup(func() {
		sh(t, `ip netns del client; ip netns del hub; ip netns del server; ip link del lan0 || :; ip link del wan0 || :`)
	})
}

// lease has udhcpc ask for an address in the client's namespace, and returns it.
func lease(t *testing.T) string {
	t.Helper()
	return leaseIn(t, "client", "c0")
}

// leaseIn is lease for a link of a namespace.
func leaseIn(t *testing.T, namespace, link string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "udhcpc")
	must(t, os.WriteFile(script, []byte(
		"#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip addr replace $ip/24 dev $interface\nip route replace default via "+
			"$router\necho leased $ip\n"), 0o755))
	out := sh(t, "ip netns exec "+namespace+" busybox udhcpc -i "+link+" -n -q -s "+script)
	m := regexp.MustCompile(`leased (\S+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no lease:\n%s", out)
	}
	return m[1]
}

// daemon is a gateway that runs.
type daemon struct {
	cfg    *config.Config
	stop   func() error
	result chan error // receives the daemon's error once
}

// onEBPF is start's default data path.
const onEBPF = `pin_dir = "/sys/fs/bpf/test"`

// start runs a gateway with a local user until the test ends or stop is called.
func start(t *testing.T, dir string) daemon { return startOn(t, dir, onEBPF) }

// startOn runs a gateway with the given keys of [datapath].
func startOn(t *testing.T, dir, datapath string) daemon {
	t.Helper()
	return serve(t, configured(t, dir, datapath))
}

// configured returns the configuration with the given keys of [datapath], and makes the file of users.
func configured(t *testing.T, dir, datapath string) *config.Config {
	t.Helper()
	users := filepath.Join(dir, "users")
	if _, err := os.Stat(users); err != nil {
		must(t, os.WriteFile(users, []byte("ann:"+HashPassword("right")+"\n"), 0o600))
	}
	cfg, err := config.Parse(filepath.Join(dir, "gatewayd.toml"), []byte(fmt.Sprintf(`
state_dir = "%[1]s/state"
run_dir = "%[1]s"
[lan]
interface = "lan0"
address = "10.1.0.1/24"
[wan]
interface = "wan0"
[dns]
upstreams = ["192.0.2.2"]
[auth]
methods = ["users"]
[users]
file = "%[1]s/users"
[datapath]
%[2]s
`, dir, datapath)))
	must(t, err)
	return cfg
}

// serve runs a gateway until the test ends or stop is called.
func serve(t *testing.T, cfg *config.Config) daemon {
	t.Helper()
	return serveLogging(t, cfg, slog.New(slog.DiscardHandler))
}

// serveLogging is serve with a log.
func serveLogging(t *testing.T, cfg *config.Config, log *slog.Logger) daemon {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, Daemon{Version: "test", Log: log, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the gateway ended while starting: %v", err)
	}
	d := daemon{cfg: cfg, result: ended, stop: func() error { cancel(); err := <-ended; ended <- err; return err }}
	t.Cleanup(func() { d.stop() })
	return d
}

// client is the only client of the gateway.
func (d daemon) client(t *testing.T) control.Session {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	var found []control.Session
	must(t, c.Sessions(
		t.Context(), control.Filter{}, func(s control.Session) error { found = append(found, s); return nil }))
	if len(found) != 1 {
		t.Fatalf("%d clients, want one: %+v", len(found), found)
	}
	return found[0]
}

const curl = "ip netns exec client curl -s --max-time 30 "

// clientReachesServer reports whether the client reaches the server.
func clientReachesServer() bool {
	_, err := try("ip netns exec client ping -c 1 -W 4 192.0.2.2")
	return err == nil
}

// TestClient takes one client through lease, redirect, wrong password, login, a restart of the gateway and logout.
// Long: the steps of one run, each of which needs the state that the one before left.
func TestClient(t *testing.T) {
	network(t)
	dir := t.TempDir()
	d := start(t, dir)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	addr := lease(t)
	if clientReachesServer() {
		t.Fatal("a client that is not logged in reaches the server")
	}
	caught := sh(t, curl+`-o /dev/null -w '%{http_code} %{redirect_url}' http://192.0.2.2/generate_204`)
	if !strings.HasPrefix(caught, "302 http://10.1.0.1:8080/login") {
		t.Fatalf("the first look at the web is answered by %q", caught)
	}
	if got := d.client(t).State; got != session.PreAuth {
		t.Errorf("after the redirect the client is %q", got)
	}
	login := func(password string) string {
		page := sh(t, curl+`http://10.1.0.1:8080/login`)
		token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
		if token == nil {
			t.Fatalf("no form on the login page:\n%s", page)
		}
		return sh(t, curl+fmt.Sprintf(
			`-o /dev/null -w '%%{http_code}' -d token=%s -d username=ann -d password=%s http://10.1.0.1:8080/login`, token[1],
			password))
	}
	if code := login("wrong"); code == "303" || clientReachesServer() {
		t.Errorf("a wrong password is answered by %s", code)
	}
	if code := login("right"); code != "303" || !clientReachesServer() {
		t.Fatalf("the right password is answered by %s", code)
	}
	if got := d.client(t).Limits.IdleTimeoutSeconds; got != 7200 {
		t.Errorf("a login at the portal ends after %v idle seconds, want two hours", got)
	}

	must(t, d.stop())
	if !clientReachesServer() {
		t.Error("without the daemon the client is cut off")
	}
	d = start(t, dir)
	if got := d.client(t).State; got != session.Authenticated || !clientReachesServer() {
		t.Errorf("after a restart the client is %q", got)
	}

	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	status, err := c.Status(t.Context())
	must(t, err)
	if status.Sessions[session.Authenticated] != 1 || status.Leases != 1 || status.Traffic.UpPackets == 0 {
		t.Errorf("status %+v", status)
	}
	page := sh(t, curl+`http://10.1.0.1:8080/status`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form on the status page:\n%s", page)
	}
	sh(t, curl+`-o /dev/null -d token=`+token[1]+` -d username=ann http://10.1.0.1:8080/logout`)
	if clientReachesServer() {
		t.Errorf("%s still passes after logout", addr)
	}
}

// startWithAnn starts a gateway in a new network with a client that is logged in as ann.
func startWithAnn(t *testing.T, dir string) daemon {
	t.Helper()
	network(t)
	d := start(t, dir)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	addr := netip.MustParseAddr(lease(t))
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	s, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"})
	must(t, err)
	if s.Limits.IdleTimeoutSeconds != 0 {
		t.Errorf("an operator's login ends after %v idle seconds, want never", s.Limits.IdleTimeoutSeconds)
	}
	if !clientReachesServer() {
		t.Fatal("a client that was logged in does not pass")
	}
	return d
}

// TestDamagedStateIsSetAside: the daemon starts with damaged files of sessions and leases, keeps them under other
// names, and lets nobody through whom it does not know.
func TestDamagedStateIsSetAside(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	must(t, d.stop())
	for _, name := range []string{"sessions.db", "leases.db"} {
		path := filepath.Join(dir, "state", name)
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.WriteFile(path, bytes.Repeat([]byte("damaged "), int(info.Size())/8), 0o600))
	}
	d = start(t, dir)
	if clientReachesServer() {
		t.Error("the client passes although its session is lost")
	}
	for _, name := range []string{"sessions.db", "leases.db"} {
		kept, err := os.ReadFile(filepath.Join(dir, "state", name+".damaged-1"))
		if err != nil || !bytes.HasPrefix(kept, []byte("damaged ")) {
			t.Errorf("%s is not kept: %v", name, err)
		}
	}
	addr := netip.MustParseAddr(lease(t))
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	if _, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"}); err != nil ||
		!clientReachesServer() {
		t.Errorf("a new login does not pass: %v", err)
	}
}

// TestLostStoreBlocksClients: clients that are not in the table are blocked, also if a former daemon had admitted them.
func TestLostStoreBlocksClients(t *testing.T) {
	dir := t.TempDir()
	d := startWithAnn(t, dir)
	must(t, d.stop())
	must(t, os.Remove(filepath.Join(dir, "state", "sessions.db")))
	d = start(t, dir)
	if clientReachesServer() {
		t.Error("the client passes although its session is lost")
	}
	if got := d.client(t).State; got == session.Authenticated {
		t.Error("the gateway believes in a session it has lost")
	}
}
