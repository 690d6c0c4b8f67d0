package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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

// trunk creates LANs, 10, 20 and so on, each with a bridge and a client behind it, and a server at the WAN.
//
//	guest10 ── bridge ── lan0.10 ─┐
//	guest20 ── bridge ── lan0.20 ─┴─ gateway wan0 ── s0 server
func trunk(t testing.TB, vlans ...int) {
	t.Helper()
	sh(t, netnstest.Up+`ip netns add hub; ip netns add server; ip netns exec hub sh -c '`+netnstest.NoIPv6+`'
ip link add wan0 type veth peer name s0 netns server; ip addr add 192.0.2.1/24 dev wan0; ip link set wan0 up
ip -n server link set lo up; ip -n server link set s0 up; ip -n server addr add 192.0.2.2/24 dev s0; up wan0`)
	t.Cleanup(func() { sh(t, `ip link del wan0; ip netns del hub; ip netns del server`) })
	for _, v := range vlans {
		vlan(t, v)
	}
}

// vlan adds a LAN, with a client behind a bridge.
func vlan(t testing.TB, v int) {
	t.Helper()
	sh(t, fmt.Sprintf(netnstest.Up+`ip netns add guest%[1]d
ip link add lan0.%[1]d type veth peer name lan.%[1]d netns hub; ip -n hub link add br%[1]d type bridge
ip -n guest%[1]d link add c0 type veth peer name p%[1]d netns hub
ip addr add 10.%[1]d.0.1/24 dev lan0.%[1]d; ip link set lan0.%[1]d up; ip -n hub link set br%[1]d up
ip -n hub link set lan.%[1]d master br%[1]d up; ip -n hub link set p%[1]d master br%[1]d up
ip -n guest%[1]d link set lo up; ip -n guest%[1]d link set c0 up; ip -n server route add 10.%[1]d.0.0/24 via 192.0.2.1
for p in p%[1]d lan.%[1]d; do
	until ip netns exec hub bridge link show dev $p | grep -q forwarding; do sleep 0.01; done; done
up lan0.%[1]d; ip netns exec guest%[1]d sh -ec '`+netnstest.Up+`up c0'`, v))
	t.Cleanup(func() { sh(t, fmt.Sprintf("ip netns del guest%[1]d; ip link del lan0.%[1]d || :", v)) })
}

// guest is the client of a VLAN.
type guest struct {
	t    testing.TB
	vlan int
}

func (g guest) try(command string) (string, error) {
	return try(fmt.Sprintf("ip netns exec guest%d %s", g.vlan, command))
}

// lease has the client ask for an address.
func (g guest) lease(dir string) netip.Addr {
	g.t.Helper()
	script := filepath.Join(dir, "udhcpc")
	must(g.t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n"+
		"ip addr replace $ip/24 dev $interface\nip route replace default via $router\necho leased $ip\n"), 0o755))
	out, err := g.try("busybox udhcpc -i c0 -n -q -s " + script)
	m := regexp.MustCompile(`leased (\S+)`).FindStringSubmatch(out)
	if m == nil {
		g.t.Fatalf("no lease: %v\n%s", err, out)
	}
	return netip.MustParseAddr(m[1])
}

// logIn fills in the portal's form.
func (g guest) logIn() {
	g.t.Helper()
	url := fmt.Sprintf("http://10.%d.0.1:8080/login", g.vlan)
	page, err := g.try("curl -s --max-time 30 " + url)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		g.t.Fatalf("no form on the login page: %v\n%s", err, page)
	}
	code, err := g.try("curl -s --max-time 30 -o /dev/null -w '%{http_code}' -d token=" + token[1] +
		" -d username=ann -d password=right " + url)
	if code != "303" {
		g.t.Fatalf("the right password is answered by %s, %v", code, err)
	}
}

// reaches reports whether the client reaches an address. Where it should not, want is false, and it waits less long for
// an answer that does not come.
func (g guest) reaches(addr string, want bool) bool {
	flags := "-c 1 -W 5 "
	if !want {
		flags = "-c 2 -i 0.1 -W 0.2 "
	}
	_, err := g.try("ping " + flags + addr)
	return err == nil
}

// mustReach checks whether the client reaches an address.
func (g guest) mustReach(addr string, want bool, when string) {
	g.t.Helper()
	if got := g.reaches(addr, want); got != want {
		g.t.Errorf("%s: the client of VLAN %d reaches %s: %v", when, g.vlan, addr, got)
	}
}

// severalHead are the keys for all networks.
const severalHead = `
state_dir = "%[1]s/state"
run_dir = "%[1]s"
[wan]
interface = "wan0"
[dns]
upstreams = ["192.0.2.2"]
[auth]
methods = ["users"]
[users]
file = "%[1]s/users"
[datapath]
pin_dir = "/sys/fs/bpf/test"
[metrics]
listen = "127.0.0.1:9464"
`

// networkText is the table of a VLAN's network, with more keys.
func networkText(v int, more string) string {
	return fmt.Sprintf(`[[network]]
name = "n%[1]d"
interface = "lan0.%[1]d"
address = "10.%[1]d.0.1/24"
%[2]s
`, v, more)
}

// severalConfig returns the configuration of several networks.
func severalConfig(t testing.TB, dir string, networks ...string) *config.Config {
	t.Helper()
	return severalWith(t, dir, severalHead, networks...)
}

// severalWith is severalConfig with other keys for all networks.
func severalWith(t testing.TB, dir, head string, networks ...string) *config.Config {
	t.Helper()
	users := filepath.Join(dir, "users")
	if _, err := os.Stat(users); err != nil {
		must(t, os.WriteFile(users, []byte("ann:"+HashPassword("right")+"\n"), 0o600))
	}
	cfg, err := config.Parse(filepath.Join(dir, "gatewayd.toml"),
		[]byte(fmt.Sprintf(head, dir)+strings.Join(networks, "\n")))
	must(t, err)
	return cfg
}

// severalDaemon is a daemon with several networks.
type severalDaemon struct {
	*control.Client
	apply Apply
	stop  func() error
}

// serveSeveral runs a daemon until the test ends or stop is called.
func serveSeveral(t testing.TB, cfg *config.Config) *severalDaemon {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &severalDaemon{}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, Daemon{Version: "test", Log: log, Ready: func() { close(ready) },
			Apply: func(apply Apply) { d.apply = apply }})
	}()
	d.stop = func() error { cancel(); err := <-ended; ended <- err; return err }
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the daemon ended while starting: %v", err)
	}
	t.Cleanup(func() { d.stop() })
	var err error
	d.Client, err = control.Dial(cfg.ControlSocket())
	must(t, err)
	return d
}

// testWriter logs to a test.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// detachAll removes what a configuration's networks left in the kernel, and checks that nothing stays.
func detachAll(t testing.TB, cfg *config.Config) {
	t.Helper()
	for _, n := range cfg.All() {
		must(t, Detach(n, false))
	}
	left := sh(t, "nft list ruleset; ls -A /sys/fs/bpf/test; bpftool net show dev wan0 2>/dev/null | grep split || :")
	if strings.Contains(left, "gatewayd") || strings.Contains(left, "_shared") || strings.Contains(left, "wan_split") {
		t.Errorf("detach leaves:\n%s", left)
	}
}

// sessions returns the clients of a network; "": of all.
func (d *severalDaemon) sessions(t testing.TB, network string) (all []control.Session) {
	t.Helper()
	must(t, d.Sessions(t.Context(), control.Filter{Network: network}, func(s control.Session) error {
		all = append(all, s)
		return nil
	}))
	return all
}

// TestTwoNetworks: clients of two networks get leases of their own, log in at their own portals, reach the server and
// not each other, and are shown by network; a third network's clients reach the first one's, because the
// configuration says so. Long: the steps of one run, each of which needs the state that the one before left.
func TestTwoNetworks(t *testing.T) {
	trunk(t, 10, 20, 30)
	dir := t.TempDir()
	cfg := severalConfig(t, dir, networkText(10, "[network.nat]\nmasquerade = true"),
		networkText(20, "[network.portal]\ntitle = \"Second\""), networkText(30, `reaches = ["n10"]`))
	t.Cleanup(func() { detachAll(t, cfg) })
	d := serveSeveral(t, cfg)
	guests := map[int]guest{}
	addrs := map[int]netip.Addr{}
	for _, v := range []int{10, 20, 30} {
		g := guest{t, v}
		guests[v], addrs[v] = g, g.lease(dir)
		if own := netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", v)); !own.Contains(addrs[v]) {
			t.Errorf("the client of VLAN %d has %v", v, addrs[v])
		}
		g.mustReach("192.0.2.2", false, "before login")
		g.logIn()
		g.mustReach("192.0.2.2", true, "after login")
	}
	if page, _ := guests[20].try("curl -s http://10.20.0.1:8080/status"); !strings.Contains(page, "Second") {
		t.Errorf("the second network's page has another title:\n%s", page)
	}
	for _, way := range []struct {
		from, to int
		want     bool
	}{{10, 20, false}, {20, 10, false}, {20, 30, false}, {30, 20, false}, {10, 30, true}, {30, 10, true}} {
		guests[way.from].mustReach(addrs[way.to].String(), way.want, "across networks")
	}
	// What comes back to the translated network, and to the others, is handed to each of them at the WAN.
	for _, v := range []int{10, 20, 30} {
		s, err := d.Session(t.Context(), addrs[v])
		must(t, err)
		if s.Network != fmt.Sprintf("n%d", v) || s.State != session.Authenticated || s.UpPackets == 0 || s.DownPackets == 0 {
			t.Errorf("the client of VLAN %d is %+v", v, s)
		}
		if all := d.sessions(t, s.Network); len(all) != 1 || all[0].Addr != addrs[v] {
			t.Errorf("network %s has %+v", s.Network, all)
		}
	}
	if err := d.Sessions(t.Context(), control.Filter{Network: "n11"}, nil); err == nil {
		t.Error("there are sessions of a network that is not there")
	}
	if all := d.sessions(t, ""); len(all) != 3 {
		t.Errorf("all sessions are %+v", all)
	}
	status, err := d.Status(t.Context())
	must(t, err)
	if status.Sessions[session.Authenticated] != 3 || len(status.Networks) != 3 || status.Leases != 3 || status.Why != "" {
		t.Errorf("status %+v", status)
	}
	if n := status.Networks[1]; n.Network != "n20" || n.Sessions[session.Authenticated] != 1 || n.LAN != "lan0.20" ||
		n.Packets["other-network"] == 0 {
		t.Errorf("status of the second network: %+v", n)
	}
	netnstest.Await(t, "flows of all networks to be cached, because one translates", func() error {
		now, err := d.Status(t.Context())
		must(t, err)
		for _, n := range now.Networks {
			if n.Datapath != "ebpf, flow cache" {
				return fmt.Errorf("%s: %s, %s", n.Network, n.Datapath, n.Why)
			}
		}
		return nil
	})
	metrics := scrape(t)
	for _, want := range []string{`gatewayd_clients{network="n10",state="authenticated"} 1`,
		`gatewayd_clients{network="n20",state="authenticated"} 1`, `gatewayd_dhcp_leases{network="n30"} 1`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	_, err = d.Logout(t.Context(), control.LogoutRequest{Addr: addrs[20]})
	must(t, err)
	asBefore := func(when string) {
		t.Helper()
		guests[20].mustReach("192.0.2.2", false, when)
		guests[10].mustReach("192.0.2.2", true, when)
		guests[30].mustReach("192.0.2.2", true, when)
		guests[10].mustReach(addrs[20].String(), false, when)
	}
	asBefore("after a logout")
	must(t, d.stop())
	asBefore("without the daemon")
	serveSeveral(t, cfg)
	asBefore("with the next daemon")
}

// TestMachineForNetworks: what the machine lacks for a network is told with the line and the key of [[network]].
func TestMachineForNetworks(t *testing.T) {
	dir := t.TempDir()
	sh(t, "ip link add lan0.20 type veth peer name other")
	t.Cleanup(func() { sh(t, "ip link del lan0.20") })
	found := fmt.Sprint(Check(severalConfig(t, dir, networkText(10, ""), networkText(20, ""))))
	head := strings.Count(severalHead, "\n")
	for _, want := range []string{
		fmt.Sprintf("network n10: %s/gatewayd.toml:%d: network.interface: looking for \"lan0.10\"", dir, head+3),
		fmt.Sprintf("network n20: %s/gatewayd.toml:%d: network.address: lan0.20 does not have 10.20.0.1/24: ip addr add",
			dir, head+10),
		fmt.Sprintf("%s/gatewayd.toml:5: wan.interface: looking for \"wan0\"", dir)} {
		if !strings.Contains(found, want) {
			t.Errorf("the checks lack %s:\n%s", want, found)
		}
	}
}

// scrape reads the metrics.
func scrape(t testing.TB) string {
	t.Helper()
	r, err := http.Get("http://127.0.0.1:9464/metrics")
	must(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must(t, err)
	return string(text)
}
