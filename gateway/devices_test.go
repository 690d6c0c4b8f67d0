// Tests of devices that come in without a login.

package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
func awaitWay(t *testing.T, d daemon, state control.State, way session.Way) (s control.Session) {
	t.Helper()
	netnstest.Await(t, fmt.Sprintf("the client is %s by %q", state, way), func() error {
		if s = d.client(t); s.State != state || s.Way != way {
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
