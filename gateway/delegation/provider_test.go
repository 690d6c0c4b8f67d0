package delegation

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// provider is a namespace with a DHCPv6 server behind the link wan0.
type provider struct {
	space  *netnstest.Space
	folder string
	kind   serverKind
	server *exec.Cmd
	output *output // of the last one
}

// serverKind is a server program. configure writes its configuration for a pool of /56s, one for each pair of prefix
// and lifetimes, and returns its command. The second server of a test keeps the leases of the first.
type serverKind struct {
	name      string
	configure func(t *testing.T, folder string, p pool) *exec.Cmd
}

// pool is what a server delegates from.
type pool struct {
	prefix           string // a /48
	length           int    // of the delegated prefixes
	preferred, valid int    // seconds; renewed after a third
	empty            bool   // delegates nothing
}

var kinds = []serverKind{{"kea", configureKea}, {"dhcpd", configureDhcpd}}

func configureKea(t *testing.T, folder string, p pool) *exec.Cmd {
	t.Helper()
	pools := fmt.Sprintf(`{"prefix": %q, "prefix-len": 48, "delegated-len": %d}`,
		strings.TrimSuffix(p.prefix, "/48"), p.length)
	if p.empty {
		pools = ""
	}
	write(t, filepath.Join(folder, "kea.json"), fmt.Sprintf(`{"Dhcp6": {
"interfaces-config": {"interfaces": ["srv0"]},
"server-id": {"type": "EN", "enterprise-id": 32473, "identifier": "0102030405", "persist": false},
"lease-database": {"type": "memfile", "persist": true, "name": %q, "lfc-interval": 0},
"renew-timer": %d, "rebind-timer": %d, "preferred-lifetime": %d, "valid-lifetime": %d,
"subnet6": [{"id": 1, "subnet": "2001:db8:ffff::/64", "interface": "srv0", "rapid-commit": true, "pd-pools": [%s]}],
"loggers": [{"name": "kea-dhcp6", "severity": "DEBUG", "debuglevel": 40, "output_options": [{"output": "stdout"}]}]}}
`, filepath.Join(folder, "kea.leases"), p.preferred/3, p.preferred*2/3, p.preferred, p.valid, pools))
	cmd := exec.Command("kea-dhcp6", "-c", filepath.Join(folder, "kea.json"))
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+folder, "KEA_LOCKFILE_DIR="+folder)
	return cmd
}

func configureDhcpd(t *testing.T, folder string, p pool) *exec.Cmd {
	t.Helper()
	first := netip.MustParsePrefix(p.prefix).Addr().As16()
	first[6] = 0xff
	last := netip.AddrFrom16(first)
	pools := fmt.Sprintf("prefix6 %v %v /%d;", netip.MustParsePrefix(p.prefix).Addr(), last, p.length)
	if p.empty {
		pools = ""
	}
	write(t, filepath.Join(folder, "dhcpd.conf"), fmt.Sprintf(`authoritative;
preferred-lifetime %d; default-lease-time %d; option dhcp-renewal-time %d; option dhcp-rebinding-time %d;
subnet6 2001:db8:ffff::/64 { %s }
`, p.preferred, p.valid, p.preferred/3, p.preferred*2/3, pools))
	leases := filepath.Join(folder, "dhcpd.leases")
	if _, err := os.Stat(leases); err != nil {
		write(t, leases, "")
	}
	return exec.Command("dhcpd", "-6", "-f", "-d", "-user", "root", "-group", "root",
		"-cf", filepath.Join(folder, "dhcpd.conf"), "-lf", leases, "-pf", filepath.Join(folder, "dhcpd.pid"), "srv0")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	netnstest.Must(t, os.WriteFile(path, []byte(text), 0o644))
}

// newProvider makes the link wan0 to a namespace with a server that delegates from a pool.
func newProvider(t *testing.T, kind serverKind, p pool) *provider {
	t.Helper()
	s := &provider{space: netnstest.NewSpace(t), folder: t.TempDir(), kind: kind}
	s.space.Run(t, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
	netnstest.Run(t, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; "+s.cable()+"; ip link set wan0 up")
	t.Cleanup(func() { netnstest.Try("ip link del wan0") })
	s.connect(t)
	s.start(t, p)
	return s
}

// cable is the command that makes the link.
func (s *provider) cable() string {
	return fmt.Sprintf("ip link add wan0 address 02:00:00:00:00:01 type veth "+
		"peer name srv0 address 02:00:00:00:00:02 netns %d", s.space.TID())
}

// connect sets the server's end up, and waits until both ends have link-local addresses: Kea goes on without a socket
// where it finds none at its start.
func (s *provider) connect(t *testing.T) {
	t.Helper()
	const local = `; until ip -6 addr show dev "$link" scope link -tentative | grep -q inet6; do sleep 0.01; done`
	s.space.Run(t, netnstest.Up+`ip addr replace 2001:db8:ffff::1/64 dev srv0
ip link set srv0 up; link=srv0; up srv0`+local)
	netnstest.Run(t, netnstest.Up+"link=wan0; up wan0"+local)
}

// start starts the server, and returns when it listens.
func (s *provider) start(t *testing.T, p pool) {
	t.Helper()
	s.server = s.kind.configure(t, s.folder, p)
	s.output = &output{}
	out := s.output
	s.server.Stdout, s.server.Stderr = out, out
	netnstest.Must(t, s.space.Start(s.server))
	server := s.server
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Logf("%s has written:\n%s", s.kind.name, out.String())
		}
	})
	netnstest.Until(t, s.kind.name+" to listen", func() bool {
		listening, err := s.space.Try("ss -Hlun sport = :547")
		return err == nil && listening != ""
	})
}

// stop ends the server.
func (s *provider) stop(t *testing.T) {
	t.Helper()
	netnstest.Must(t, s.server.Process.Kill())
	s.server.Wait()
}

// output is what a program writes, to be read while it runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a client that runs, and what it has told.
type running struct {
	*Client
	end func() // of the client: it closes, and keeps its prefixes

	mu   sync.Mutex
	told [][]Prefix // guarded by mu
}

// run runs a client with its state in a folder, until the test ends or end is called.
func run(t *testing.T, o Options) *running {
	t.Helper()
	r := &running{}
	o.Interface = "wan0"
	o.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Changed = func(all []Prefix) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, all)
	}
	c, err := Open(o)
	netnstest.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	r.Client = c
	r.end = sync.OnceFunc(func() {
		stop()
		running.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.end)
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// present are the prefixes that were told last.
func (r *running) present() []Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return nil
	}
	return r.told[len(r.told)-1]
}

// await waits until the prefixes told last satisfy a condition, and returns them.
func (r *running) await(t *testing.T, label string, ok func([]Prefix) bool) (found []Prefix) {
	t.Helper()
	netnstest.Await(t, label, func() error {
		if found = r.present(); !ok(found) {
			return fmt.Errorf("told is %v; state %+v", found, r.State())
		}
		return nil
	})
	return found
}

// usable returns the numbers' prefixes within a larger one that are not deprecated.
func usable(list []Prefix, within string) (found []Prefix) {
	outer := netip.MustParsePrefix(within)
	for _, p := range list {
		if outer.Contains(p.Prefix.Addr()) && p.Prefix.Bits() >= outer.Bits() && !p.Deprecated(time.Now()) {
			found = append(found, p)
		}
	}
	return found
}

// eachServer runs a test with each server program.
func eachServer(t *testing.T, test func(t *testing.T, kind serverKind)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) { test(t, kind) })
	}
}

const (
	poolA = "2001:db8:a::/48"
	poolB = "2001:db8:b::/48"
)

// Lifetimes: short ones are renewed after 2 s, and brief ones, for tests that wait for the end of a prefix, after 1 s.
func short(prefix string) pool { return pool{prefix: prefix, length: 56, preferred: 6, valid: 8} }
func brief(prefix string) pool { return pool{prefix: prefix, length: 56, preferred: 3, valid: 4} }
func lasting(prefix string) pool {
	return pool{prefix: prefix, length: 56, preferred: 3000, valid: 4000}
}
