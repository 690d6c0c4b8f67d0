package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// inn is the portal's name in the tests of services.
const inn = "login.inn.example"

// certified gives the portal a name and a certificate, which its file has.
func certified(t *testing.T, dir string, cfg *config.Config) (file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: inn},
		DNSNames: []string{inn}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	p := &cfg.Portal
	p.Name, p.TLSCert, p.TLSKey, p.TLSPort = inn, filepath.Join(dir, "cert"), filepath.Join(dir, "key"), 8443
	must(t, errors.Join(
		os.WriteFile(p.TLSCert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(p.TLSKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)))
	return p.TLSCert
}

// inGarden6 is the server's other address, at which it has the site garden.example.
const inGarden6 = "2001:db8:9::9a"

// outside6Serves has the server's namespace answer names with outside and outside6, and port 7000 with a page.
func outside6Serves(t *testing.T, dir string) {
	t.Helper()
	spawn(t, "server", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
		"--no-hosts", "--bind-interfaces", "--listen-address="+outside, "--address=/#/"+outside, "--address=/#/"+outside6,
		"--address=/garden.example/"+inGarden6)
	sh(t, "ip -n server addr add "+inGarden6+"/64 dev s0 nodad")
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("a page"), 0o644))
	spawn(t, "server", "busybox", "httpd", "-f", "-p", "[::]:7000", "-h", dir)
	netnstest.Await(t, "the server", func() error {
		_, err := try("ip netns exec server sh -c 'ss -ltn | grep :7000 && ss -lun | grep :53'")
		return err
	})
}

// asks6 has the client ask a DNS server for a name's IPv6 address.
func asks6(server, name string) (answer string, err error) {
	out, err := try("ip netns exec client busybox nslookup -type=aaaa " + name + " " + server)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	_, answer, _ = strings.Cut(out, "Name:")
	return answer, nil
}

// inn6 is the client's view of the portal.
type inn6 struct {
	curl string // command that trusts the portal's certificate and resolves names by IPv6
	api  string // URL
}

// form returns the token of the form on a page of the portal.
func (p inn6) form(t *testing.T, page string) string {
	t.Helper()
	text := sh(t, p.curl+"https://"+inn+":8443/"+page)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(text)
	if token == nil {
		t.Fatalf("no form on the page:\n%s", text)
	}
	return token[1]
}

// captive checks what the API says.
func (p inn6) captive(t *testing.T, phase string, want bool) {
	t.Helper()
	out := sh(t, p.curl+"-w ' %{content_type}' "+p.api)
	said := regexp.MustCompile(fmt.Sprintf(`"captive":\s*%v`, want)).MatchString(out)
	if !said || !strings.HasSuffix(out, " application/captive+json") {
		t.Errorf("%s the API says %s", phase, out)
	}
}

// TestServicesByIPv6: what a client has of the gateway by IPv6, before login and after it: DNS and portal while it has
// no global address, names of the walled garden, the API of the captive portal, and limits of both families together.
func TestServicesByIPv6(t *testing.T) {
	network6(t)
	sh(t, "ip netns exec client sysctl -qw net.ipv6.conf.c0.autoconf=0")
	dir := t.TempDir()
	outside6Serves(t, dir)
	cfg := configured(t, dir, onEBPF)
	cfg.LAN.Address6, cfg.DNS.AnswerAAAA = netip.MustParsePrefix("2001:db8:1::1/64"), true
	cfg.Garden.Domains = []string{"garden.example"}
	cfg.Datapath.Shaping = config.ShapingNever // where it begins, another packet passes
	p := inn6{curl: curl6 + "-f --cacert " + certified(t, dir, cfg) + " "}
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(cfg, false)) })
	addr4 := netip.MustParseAddr(lease(t))
	resolveAt(t, "2001:db8:1::1")
	t.Run("link-local", func(t *testing.T) { linkLocal6(t, p) })
	t.Run("API", func(t *testing.T) { p.api = advertisedAPI6(t); p.captive(t, "before login", true) })
	t.Run("garden", garden6)
	t.Run("login", func(t *testing.T) {
		code := sh(t, p.curl+`-o /dev/null -w '%{http_code}' -d token=`+p.form(t, "login")+
			` -d username=ann -d password=right https://`+inn+`:8443/login`)
		if code != "303" {
			t.Errorf("the login is answered by %s", code)
		}
		p.captive(t, "after login", false)
	})
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	t.Run("quota", func(t *testing.T) { quota6(t, c, addr4) })
	t.Run("rate", func(t *testing.T) { rate6(t, c, addr4) })
}

// linkLocal6: a client that has no global IPv6 address yet gets answers of DNS, and the portal knows it by its
// link-local address. It reaches nobody else.
func linkLocal6(t *testing.T, p inn6) {
	netnstest.Await(t, "a router", func() error {
		out, err := try("ip -n client -6 route get 2001:db8:1::1 | grep fe80")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if addrs := addrs6(t); len(addrs) > 0 {
		t.Fatalf("the client has %v", addrs)
	}
	if answer, err := asks6("2001:db8:1::1", inn); err != nil || !strings.Contains(answer, "2001:db8:1::1") {
		t.Errorf("DNS says %q, %v", answer, err)
	}
	p.form(t, "login")
	if out, err := try("ip netns exec client ping -6 -c 1 -W 1 " + outside6); err == nil {
		t.Errorf("it reaches the server: %s", out)
	}
	sh(t, "ip netns exec client sysctl -qw net.ipv6.conf.c0.autoconf=1; ip netns exec client rdisc6 -1 c0")
	awaitAddrs6(t, 1)
}

// advertisedAPI6 returns the URL of the API that a router advertisement has (RFC 8910).
func advertisedAPI6(t *testing.T) string {
	t.Helper()
	advertised := sh(t, `ip netns exec client sh -c 'tcpdump -c 1 -vvA -i c0 "icmp6[0] == 134" & rdisc6 -1 c0; wait'`)
	api := regexp.MustCompile(`https://[!-~]+/api/captive-portal`).FindString(advertised)
	if api != "https://"+inn+":8443/api/captive-portal" {
		t.Fatalf("advertised is %q:\n%s", api, advertised)
	}
	return api
}

// garden6: before login a server is reached once its name is asked for, if that is of the garden.
func garden6(t *testing.T) {
	fetch := func() (string, error) { return try(curl6 + "http://[" + inGarden6 + "]:7000/file") }
	for _, name := range []string{"other.example", "garden.example"} {
		if out, err := fetch(); err == nil {
			t.Errorf("before %s is asked for, the server is reached: %s", name, out)
		}
		if answer, err := asks6("2001:db8:1::1", name); err != nil || !strings.Contains(answer, "2001:db8:9::") {
			t.Errorf("asked for %s, DNS says %q, %v", name, answer, err)
		}
	}
	if page, err := fetch(); err != nil || page != "a page" {
		t.Errorf("the garden's server is not reached: %q, %v", page, err)
	}
}

// loginLimited logs the client in with limits.
func loginLimited(t *testing.T, c *control.Client, client netip.Addr, l control.Limits) {
	t.Helper()
	_, err := c.Login(t.Context(), control.LoginRequest{Addr: client, User: "ann", Limits: l})
	must(t, err)
}

// pings has the client send large echo requests by a family, and returns how many are answered.
func pings(t *testing.T, to string, count int) (answered int) {
	t.Helper()
	out, _ := try(fmt.Sprintf("ip netns exec client ping -c %d -i 0.005 -W 4 -s 1000 %s", count, to))
	m := regexp.MustCompile(`(\d+) received`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	fmt.Sscan(m[1], &answered)
	return answered
}

// quota6: packets of neither family reach a session's quota, and those of both do.
func quota6(t *testing.T, c *control.Client, client netip.Addr) {
	_, err := c.Logout(t.Context(), control.LogoutRequest{Addr: client})
	must(t, err)
	loginLimited(t, c, client, control.Limits{TotalBytes: 60_000})
	if n := pings(t, outside, 20); n != 20 {
		t.Errorf("%d of 20 pings are answered by IPv4", n)
	}
	if n := pings(t, outside6, 20); n < 5 || n == 20 {
		t.Errorf("then %d of 20 pings are answered by IPv6", n)
	}
	netnstest.Await(t, "the end of the session", func() error {
		s, err := c.Session(t.Context(), client)
		if err == nil && (s.State == session.Authenticated || s.LastEnd.Cause != session.Quota) {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
	if a, b := pings(t, outside, 2), pings(t, outside6, 2); a > 0 || b > 0 {
		t.Errorf("after its end %d pings are answered by IPv4, %d by IPv6", a, b)
	}
}

// rate6: where one family has used a session's rate up, the other has none.
func rate6(t *testing.T, c *control.Client, client netip.Addr) {
	loginLimited(t, c, client, control.Limits{UpBps: 8}) // a packet in minutes
	const many = 100
	if n := pings(t, outside, many); n == many {
		t.Errorf("all of %d pings are answered by IPv4", n)
	}
	before, err := c.Status(t.Context())
	must(t, err)
	if n := pings(t, outside6, 3); n > 0 {
		t.Errorf("then %d pings are answered by IPv6", n)
	}
	if after, err := c.Status(t.Context()); err != nil || after.Packets["rate"] < before.Packets["rate"]+3 {
		t.Errorf("%d packets are counted as too fast, %v, before %d", after.Packets["rate"], err, before.Packets["rate"])
	}
}
