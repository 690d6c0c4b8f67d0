// Tests of devices that come in without a login.

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// withDevices returns a configuration with a table [devices].
func withDevices(t *testing.T, dir, datapath, devices string) *config.Config {
	t.Helper()
	cfg := configured(t, dir, datapath)
	text := fmt.Sprintf(`
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
[devices]
%[3]s
`, dir, datapath, devices)
	cfg, err := config.Parse(cfg.File, []byte(text))
	must(t, err)
	return cfg
}

// awaitWay waits until the only client has a session, or has none, by the way in.
func awaitWay(t *testing.T, d daemon, state control.State, way session.Way) control.Session {
	t.Helper()
	return awaitClient(t, d, fmt.Sprintf("the client is %s by %q", state, way), func(s control.Session) bool {
		return s.State == state && s.Way == way
	})
}

// awaitClient waits until the only client is as ok wants it, and returns it.
func awaitClient(t *testing.T, d daemon, what string, ok func(control.Session) bool) (s control.Session) {
	t.Helper()
	netnstest.Await(t, what, func() error {
		if s = d.client(t); !ok(s) {
			return fmt.Errorf("it is %s by %q", s.State, s.Way)
		}
		return nil
	})
	return s
}

// TestListedDevice: a device of the file comes in with its lease, with the limits and the name there. It loses its
// session when it is no longer in the file, sees the portal then, and comes in again once it is.
func TestListedDevice(t *testing.T) {
	network(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "devices")
	write := func(text string) { must(t, os.WriteFile(list, []byte(text), 0o600)) }
	line := strings.ToUpper(strings.ReplaceAll(linkMACIn(t, "client", "c0"), ":", "-")) + " down_rate=20M lobby tv\n"
	write("# televisions\n" + line)
	d := serveLogging(t, withDevices(t, dir, onEBPF, `file = "devices"`), slog.New(slog.DiscardHandler))
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	lease(t)
	s := awaitWay(t, d, session.Authenticated, session.ByList)
	if s.User != "lobby tv" || s.Limits.DownBps != 20_000_000 || s.Limits.IdleTimeoutSeconds != 0 {
		t.Errorf("the session is %+v", s)
	}
	if !clientReachesServer() {
		t.Error("a device of the file reaches nothing")
	}
	write("# none\n")
	awaitWay(t, d, session.PreAuth, "")
	caught := sh(t, curl+`-o /dev/null -w '%{http_code} %{redirect_url}' http://192.0.2.2/`)
	if !strings.HasPrefix(caught, "302 http://10.1.0.1:8080/login") {
		t.Errorf("a device that is no longer in the file gets %q", caught)
	}
	write("broken\n")
	netnstest.Await(t, "the status names the mistake", func() error {
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		st, err := c.Status(t.Context())
		must(t, err)
		if st.Listed == nil || !strings.HasPrefix(st.Listed.Problem, list+":1: must be a MAC address") {
			return errors.New("it does not")
		}
		return nil
	})
	write(line)
	awaitWay(t, d, session.Authenticated, session.ByList)
	must(t, d.stop())
}

// TestDevicesChangedMeanwhile: the session of a listed device ends with the next start where the list has it no longer,
// and where there is no list any more.
func TestDevicesChangedMeanwhile(t *testing.T) {
	network(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "devices")
	write := func(text string) { must(t, os.WriteFile(list, []byte(text), 0o600)) }
	cfg := withDevices(t, dir, onEBPF, `file = "devices"`)
	mac := linkMACIn(t, "client", "c0") + "\n"
	write(mac)
	d := serve(t, cfg)
	t.Cleanup(func() { must(t, Detach(cfg, false)) })
	lease(t)
	awaitWay(t, d, session.Authenticated, session.ByList)
	must(t, d.stop())
	write("# none\n")
	d = serve(t, cfg)
	awaitWay(t, d, session.PreAuth, "")
	write(mac)
	awaitWay(t, d, session.Authenticated, session.ByList)
	must(t, d.stop())
	d = serve(t, withDevices(t, dir, onEBPF, ""))
	awaitWay(t, d, session.PreAuth, "")
	if clientReachesServer() {
		t.Error("a device is forwarded for without [devices]")
	}
	must(t, d.stop())
}

// logInHere logs the client in at the portal with further fields of the form, and returns the login page.
func logInHere(t *testing.T, fields string) (page string) {
	t.Helper()
	page = sh(t, curl+`http://10.1.0.1:8080/login`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form on the login page:\n%s", page)
	}
	code := sh(t, curl+fmt.Sprintf(`-o /dev/null -w '%%{http_code}' -d token=%s -d username=ann -d password=right%s `+
		`http://10.1.0.1:8080/login`, token[1], fields))
	if code != "303" {
		t.Fatalf("a right password is answered by %s", code)
	}
	return page
}

// serveAs is serve, and returns the gateway too.
func serveAs(t *testing.T, cfg *config.Config) (daemon, *gateway) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	g := newGateway(cfg, Daemon{Version: "test", Log: slog.New(slog.DiscardHandler)})
	go func() {
		ended <- runParts(ctx, append([]part{{"control", g.openControl}}, g.parts()...), func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the gateway ended while starting: %v", err)
	}
	d := daemon{cfg: cfg, result: ended, stop: func() error { cancel(); err := <-ended; ended <- err; return err }}
	t.Cleanup(func() { d.stop() })
	return d, g
}

// fallSilent ends the client's session as if it had sent nothing for long, and has it look at the web again.
func fallSilent(t *testing.T, d daemon, g *gateway) {
	t.Helper()
	if s := d.client(t); s.State == session.Authenticated {
		must(t, g.table.Kick(s.Addr, s.ID, session.IdleTimeout))
	}
	sh(t, curl+"-o /dev/null http://192.0.2.2/")
}

// TestRememberedDevice: a device comes in again without a login where the person wished it, after a restart too; not
// where the person did not, once the person has logged out, or once the account is gone.
func TestRememberedDevice(t *testing.T) {
	network(t)
	dir := t.TempDir()
	cfg := withDevices(t, dir, onEBPF, `remember = "30d"`)
	d, g := serveAs(t, cfg)
	t.Cleanup(func() { must(t, Detach(cfg, false)) })
	lease(t)
	page := logInHere(t, "")
	if !strings.Contains(page, `name="remember"`) || !strings.Contains(page, "for 30 days") {
		t.Errorf("the login page does not ask:\n%s", page)
	}
	fallSilent(t, d, g)
	if s := d.client(t); s.State == session.Authenticated {
		t.Fatal("a device is remembered although nobody wished it")
	}
	logInHere(t, " -d remember=1")
	must(t, d.stop())
	d, g = serveAs(t, cfg)
	fallSilent(t, d, g)
	s := awaitWay(t, d, session.Authenticated, session.Remembered)
	if s.User != "ann" || s.Limits.IdleTimeoutSeconds != 7200 || !clientReachesServer() {
		t.Errorf("the session of a remembered device is %+v", s)
	}

	page = sh(t, curl+`http://10.1.0.1:8080/logout`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	sh(t, curl+`-o /dev/null -d username=ann -d token=`+token[1]+` http://10.1.0.1:8080/logout`)
	fallSilent(t, d, g)
	if s := d.client(t); s.State == session.Authenticated {
		t.Error("a device comes in again although the person has logged out")
	}

	logInHere(t, " -d remember=1")
	fallSilent(t, d, g)
	awaitWay(t, d, session.Authenticated, session.Remembered)
	must(t, os.WriteFile(filepath.Join(dir, "users"), []byte("bob:"+HashPassword("right")+"\n"), 0o600))
	awaitWay(t, d, session.PreAuth, "")
	must(t, d.stop())
}

// TestDeviceWithoutLease: where another program leases addresses, a device of the file comes in with its first packet,
// and another device does not.
func TestDeviceWithoutLease(t *testing.T) {
	for _, kind := range []string{"ebpf", "nfqueue"} {
		t.Run(kind, func(t *testing.T) {
			network(t)
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "devices"), []byte(linkMACIn(t, "client", "c0")+"\n"), 0o600))
			cfg := withDevices(t, dir, keysOf[kind], `file = "devices"`)
			cfg.DHCP.Mode = config.External
			d := serve(t, cfg)
			t.Cleanup(func() { d.stop(); must(t, Detach(cfg, false)) })
			stranger := addIntruder(t)
			inject(t, "intruder", "i0", claim(stranger, "10.1.0.81"))
			netnstest.Await(t, "the other device", func() error {
				if !d.hasEntry(t, "10.1.0.81", stranger.String()) {
					inject(t, "intruder", "i0", claim(stranger, "10.1.0.81"))
					return errors.New("it is not known")
				}
				return nil
			})
			sh(t, `ip -n client addr add 10.1.0.80/24 dev c0; ip -n client route add default via 10.1.0.1`)
			netnstest.Await(t, "the device comes in", func() error {
				if !clientReachesServer() {
					return errors.New("no echo")
				}
				return nil
			})
			for _, s := range d.sessions(t) {
				if isDevice := s.Addr.String() == "10.1.0.80"; isDevice != (s.State == session.Authenticated) ||
					isDevice != (s.Way == session.ByList) {
					t.Errorf("%s is %s by %q", s.Addr, s.State, s.Way)
				}
			}
		})
	}
}

// TestDeviceWithoutIPv4: a device of the file that has IPv6 alone comes in with its first packet, and the session goes
// on once it has a lease too.
func TestDeviceWithoutIPv4(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "devices"), []byte(linkMACIn(t, "client", "c0")+" - tv\n"), 0o600))
	cfg := withDevices(t, dir, onEBPF, `file = "devices"`)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(cfg, false)) })
	addr := awaitAddrs6(t, 1)[0]
	netnstest.Await(t, "the device comes in", func() error { return reaches6(addr) })
	s := awaitWay(t, d, session.Authenticated, session.ByList)
	if s.User != "tv" || !s.Addr.Is6() {
		t.Errorf("the session is %+v", s)
	}
	lease(t)
	if now := d.client(t); now.ID != s.ID || !now.Addr.Is4() || now.Way != session.ByList || !clientReachesServer() {
		t.Errorf("with a lease the session is %+v", now)
	}
}

// TestDevicesFindings: check-config names mistakes of the file of devices, and what makes no sense.
func TestDevicesFindings(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "devices")
	must(t, os.WriteFile(list, []byte("# none\n"), 0o600))
	cfg := withDevices(t, dir, onEBPF, "file = \"devices\"\nremember = \"30d\"\n[limits]\nsession_timeout = \"24h\"")
	want := func(weight Weight, text string) {
		t.Helper()
		all := CheckFiles(cfg)
		if !slices.ContainsFunc(all, func(f Finding) bool { return f.Weight == weight && strings.Contains(f.Text, text) }) {
			t.Errorf("found %+v, want %q", all, text)
		}
	}
	want(Warning, list+" has no device: add a line")
	want(Warning, "devices.remember: a session that has used up its time is not given again")
	must(t, os.WriteFile(list, []byte("tv\n"), 0o600))
	want(Warning, list+":1: must be a MAC address")
}
