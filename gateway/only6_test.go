package gateway

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestClientWithoutIPv4 takes a client that never asks for an IPv4 address through redirect, login, a restart of the
// gateway, another address in the first one's place, a lease of an IPv4 address after all, and logout. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestClientWithoutIPv4(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	d := serve6(t, dir)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	first := awaitAddrs6(t, 1)[0]
	caught := sh(t, curl6+`-o /dev/null -w '%{http_code} %{redirect_url}' http://[2001:db8:9::2]/generate_204`)
	if !strings.HasPrefix(caught, "302 http://[2001:db8:1::1]:8080/login") {
		t.Fatalf("the first look at the web is answered by %q", caught)
	}
	if got := d.client(t); got.State != session.PreAuth || got.Addr != first {
		t.Errorf("after the redirect there is %+v", got)
	}
	if reaches6(first) == nil {
		t.Error("it reaches the server before login")
	}
	login6(t)
	netnstest.Await(t, "the way out", func() error { return reaches6(first) })
	began := d.client(t)

	must(t, d.stop())
	if err := reaches6(first); err != nil {
		t.Errorf("without the daemon the client is cut off: %v", err)
	}
	d = serve6(t, dir)
	must(t, reaches6(first))
	same := func(after string) {
		t.Helper()
		if s := d.client(t); s.ID != began.ID || s.State != session.Authenticated || s.User != "ann" {
			t.Errorf("%s there is %+v, before %+v", after, s, began)
		}
	}
	same("after a restart")
	second := netip.MustParseAddr("2001:db8:1::7e3b")
	sh(t, "ip -n client addr add 2001:db8:1::7e3b/64 dev c0")
	netnstest.Await(t, "a new address without a new login", func() error {
		if !slices.Contains(addrs6(t), second) {
			return errors.New("the kernel still looks whether another host has it")
		}
		return reaches6(second)
	})
	same("with another address")

	leased := netip.MustParseAddr(lease(t))
	same("with a lease")
	if s := d.client(t); s.Addr != leased || !slices.Contains(s.Further, first) || !slices.Contains(s.Further, second) {
		t.Errorf("with a lease there is %+v", s)
	}
	netnstest.Await(t, "IPv4 without a new login", func() error {
		if !clientReachesServer() {
			return errors.New("no echo")
		}
		return nil
	})
	must(t, reaches6(first))
	logout6(t)
	if reaches6(first) == nil || clientReachesServer() {
		t.Error("it still passes after logout")
	}
	if got := d.client(t).State; got != session.PreAuth {
		t.Errorf("after logout it is %q", got)
	}
}

// TestOperatorLogin6: an operator logs a device in by an IPv6 address that it has not used yet, without IPv4 and beside
// it. An address outside of the prefix, another's, and the gateway's own are refused, with the reason.
func TestOperatorLogin6(t *testing.T) {
	network6(t)
	sh(t, `ip netns exec client sysctl -qw net.ipv6.conf.c0.accept_ra=0
ip -n client addr add 2001:db8:1::7e3b/64 dev c0 nodad`)
	var d daemon
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	d = serve6(t, t.TempDir())
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	mac := strings.TrimSpace(linkMACIn(t, "client", "c0"))
	login := func(addr, mac string) error {
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: netip.MustParseAddr(addr), MAC: mac, User: "printer"})
		return err
	}
	for addr, why := range map[string]string{
		"2001:db8:2::5": "is of none of the client's prefixes", "2001:db8:1::1": "is of none of the client's prefixes",
	} {
		if err := login(addr, mac); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want %q", addr, err, why)
		}
	}
	must(t, login("2001:db8:1::7e3b", mac))
	if s := d.client(t); s.Addr != netip.MustParseAddr("2001:db8:1::7e3b") || s.User != "printer" {
		t.Errorf("there is %+v", s)
	}
	sh(t, "ip -n client route add default via 2001:db8:1::1")
	must(t, reaches6(netip.MustParseAddr("2001:db8:1::7e3b")))
	if err := login("2001:db8:1::7e3b", "02:00:00:00:00:09"); err == nil || !strings.Contains(err.Error(), mac+" has") {
		t.Errorf("another's address: %v", err)
	}
	lease(t)
	sh(t, "ip -n client addr add 2001:db8:1::7e3c/64 dev c0 nodad")
	must(t, login("2001:db8:1::7e3c", mac))
	if s := d.client(t); !slices.Contains(s.Further, netip.MustParseAddr("2001:db8:1::7e3c")) || s.User != "printer" {
		t.Errorf("with IPv4 there is %+v", s)
	}
	must(t, reaches6(netip.MustParseAddr("2001:db8:1::7e3c")))
}

// TestPhoneWithoutIPv4: a phone that can do without IPv4 gets no address by DHCP, makes its own IPv6 addresses, is
// shown the notice, logs in at RADIUS, reads, and logs out.
func TestPhoneWithoutIPv4(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	secret, told := startOutside(t)
	cfg := milano(t, dir, secret, `
address6 = "2001:db8:1::1/64"
nat64 = "64:ff9b::/96"
[dhcp]
ipv6_only = "30m"
`)
	t.Cleanup(func() { must(t, Detach(cfg, false)) })
	d := serve(t, cfg)
	awaitLinkLocal(t, "client", "c0")
	advertised := sh(t, `ip netns exec client sh -c 'tcpdump -c 1 -vv -i c0 "icmp6[0] == 134" & rdisc6 -1 c0; wait'`)
	if !strings.Contains(advertised, "0708 0064 ff9b 0000") { // RFC 8781: 1800 s, /96
		t.Errorf("no NAT64 is advertised:\n%s", advertised)
	}
	doWithoutIPv4(t, dir)
	addr := awaitAddrs6(t, 1)[0]
	resolveAt(t, "2001:db8:1::1")
	visitAsPerson(t, d, newPerson(t, "phone6", 390, 844), home6, addr.String())
	if out := sh(t, "ip -n client -4 addr show dev c0"); out != "" {
		t.Errorf("it has an IPv4 address: %s", out)
	}
	var records string
	eventually(t, "accounting of the log-out", func() bool {
		text, err := os.ReadFile(told)
		records = string(text)
		return err == nil && strings.Contains(records, "Acct-Status-Type = Stop")
	})
	mac := strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(linkMACIn(t, "client", "c0")), ":", "-"))
	told6 := strings.Count(records, "Framed-IPv6-Address = "+addr.String()+"\n")
	if told6 < 2 || !strings.Contains(records, `Calling-Station-Id = "`+mac+`"`) ||
		strings.Contains(records, "Framed-IP-Address") {
		t.Errorf("RADIUS was told:\n%s", records)
	}
}

// doWithoutIPv4 has dhcpcd ask for an IPv4 address as phones do, until the gateway has told it to do without.
func doWithoutIPv4(t *testing.T, dir string) {
	t.Helper()
	conf := filepath.Join(dir, "dhcpcd.conf")
	must(t, os.WriteFile(conf, []byte("noipv6\nnoipv4ll\nnohook resolv.conf\noption ipv6_only_preferred\n"), 0o644))
	script := `for d in /run /var/lib/dhcpcd; do mkdir -p $0$d; mount --bind $0$d $d; done; dhcpcd -B -d -f "$@" c0; exit`
	cmd := exec.Command("ip", "netns", "exec", "client", "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc", "sh", "-ec", script, dir, conf) // dhcpcd's other processes end with it
	out, err := cmd.StderrPipe()
	must(t, err)
	cmd.Stdout = cmd.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var said strings.Builder
	for lines := bufio.NewScanner(out); ; said.WriteString(lines.Text() + "\n") {
		if !lines.Scan() {
			t.Fatalf("dhcpcd has not been told to do without IPv4:\n%s", said.String())
		}
		if strings.Contains(lines.Text(), "IPv6-Only Preferred received (1800 seconds)") {
			return
		}
	}
}
