package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	devnet "github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/internal/oidctest"
)

// The provider of the tests is at an address and a name of its own in the server's namespace.
const (
	providerName = "login.campus.example"
	providerAddr = "198.51.100.9"
	besideAddr   = "198.51.100.10" // also in the server's namespace, and served by the same programs
	portalName   = "portal.example"
	// providerSecret is what the provider and the gateway share.
	providerSecret = "an obviously fake secret"
)

// startCampus starts the provider of a campus.
func startCampus(t *testing.T) *oidctest.Provider {
	t.Helper()
	return startProvider(t, oidctest.Config{Host: providerName, Accounts: map[string]map[string]any{
		"alice": {"email": "alice@example.org", "email_verified": true},
		"bob":   {"email": "bob@elsewhere.example", "email_verified": true}},
		Clients: []oidctest.Client{{ID: "gw", Secret: providerSecret,
			RedirectURIs: []string{"https://" + portalName + ":8443/oidc/campus/callback"}}}})
}

// startProvider starts a provider, and a DNS that knows it. The gateway's own resolver is that DNS.
func startProvider(t *testing.T, c oidctest.Config) *oidctest.Provider {
	t.Helper()
	sh(t, "ip -n server addr add "+providerAddr+"/32 dev lo; ip -n server addr add "+besideAddr+"/32 dev lo; "+
		"ip route add 198.51.100.0/24 via "+outside)
	spawn(t, "server", "env", internetEnv+"=1", os.Args[0])
	spawn(t, "server", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
		"--no-hosts", "--bind-interfaces", "--listen-address="+outside, "--address=/#/"+outside,
		"--address=/"+c.Host+"/"+providerAddr)
	eventually(t, "DNS and web", func() bool {
		out, err := try(`ip netns exec server ss -Hltun`)
		return err == nil && strings.Contains(out, outside+":53") && strings.Contains(out, "*:80")
	})
	resolveAt(t, outside)
	c.Listen, c.Port, c.Conform = netip.IPv4Unspecified(), 443, true
	return oidctest.Start(t, c, "ip", "netns", "exec", "server")
}

// campus is the configuration of a gateway with that provider.
func campus(t *testing.T, dir string, p *oidctest.Provider) *config.Config {
	t.Helper()
	cert, key := oidctest.Certificate(t, dir, portalName)
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(providerSecret+"\n"), 0o600))
	must(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "gatewayd.toml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `
state_dir = "%[1]s/state"
run_dir = "%[1]s"
[lan]
interface = "lan0"
address = "10.1.0.1/24"
[wan]
interface = "wan0"
[dns]
upstreams = ["%[2]s"]
[portal]
name = "%[3]s"
tls_cert = "%[4]s"
tls_key = "%[5]s"
[auth]
methods = ["oidc"]
[[oidc]]
name = "campus"
label = "Campus account"
issuer = "%[6]s"
client_id = "gw"
client_secret_file = "secret"
ca_file = "%[7]s"
domains = ["example.org"]
[datapath]
pin_dir = "/sys/fs/bpf/test"
`, dir, outside, portalName, cert, key, p.Issuer, p.Cert), 0o600))
	cfg, err := config.Load(path)
	must(t, err)
	return cfg
}

// newGuest starts Chromium in a namespace, whose resolver is the gateway. It trusts every certificate.
func newGuest(t *testing.T, namespace, name string) *person {
	t.Helper()
	dir := t.TempDir()
	inside, conf := filepath.Join(dir, "chromium-inside"), filepath.Join(dir, "resolv.conf")
	must(t, os.WriteFile(conf, []byte("nameserver 10.1.0.1\n"), 0o644))
	// ip netns exec gives the program a mount namespace of its own
	must(t, os.WriteFile(inside, []byte("#!/bin/sh\nexec ip netns exec "+namespace+" sh -ec 'mount --bind "+conf+
		" /etc/resolv.conf; exec "+browsertest.Program(t)+" \"$@\"' sh \"$@\"\n"), 0o755))
	within, late := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	t.Cleanup(late)
	ctx := browsertest.Start(t, within, inside, chromedp.Flag("ignore-certificate-errors", true))
	browsertest.Size(t, ctx, 390, 844)
	return &person{ctx: ctx, name: name}
}

// arrives waits until the browser has loaded a page whose address begins so.
func (p *person) arrives(t *testing.T, prefix string) {
	t.Helper()
	eventually(t, "the page "+prefix, func() bool {
		at, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.readyState + ' ' + location.href"))
		return err == nil && strings.HasPrefix(at, "complete "+prefix)
	})
	browsertest.Drawn(t, p.ctx)
}

// logInAt logs in at the provider's pages and consents.
func (p *person) logInAt(t *testing.T, provider *oidctest.Provider, who string) {
	t.Helper()
	p.navigate(t, chromedp.SendKeys(`input[name="login"]`, who), chromedp.SendKeys(`input[name="password"]`, "any\r"))
	p.arrives(t, provider.Issuer+"/interaction/")
	p.navigate(t, chromedp.Click(`button[type="submit"]`))
}

// reaches reports whether the client's machine reaches the https of an address.
func reaches(addr string) error {
	_, err := try("ip netns exec client curl -sk --max-time 20 -o /dev/null https://" + addr + "/")
	return err
}

// TestProviderLogin: a person presses the provider's button, logs in at the provider's own page, and is online. Only
// meanwhile, and only the provider, can be reached. Long: the steps of one run, each of which needs the state that the
// one before left.
func TestProviderLogin(t *testing.T) {
	network(t)
	p := startCampus(t)
	cfg := campus(t, t.TempDir(), p)
	t.Cleanup(func() { must(t, Detach(cfg, false)) }) // once it has ended
	d := serveLogging(t, cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	lease(t)
	guest := newGuest(t, "client", "guest")
	closed := func(when string) {
		t.Helper()
		for _, addr := range []string{providerAddr, besideAddr} {
			if reaches(addr) == nil {
				t.Errorf("%s the client reaches %s", when, addr)
			}
		}
	}
	closed("at first")
	login := "https://" + portalName + ":8443/login"
	if at := guest.navigate(t, chromedp.Navigate(wanted)); !strings.HasPrefix(at, login) {
		t.Fatalf("asked for %s, and came to %s", wanted, at)
	}
	guest.expectPage(t, "login", "Sign in with Campus account")
	closed("before the button is pressed")

	for _, who := range []string{"bob", "alice"} {
		guest.navigate(t, chromedp.Click(`button[value="campus"]`))
		guest.arrives(t, p.Issuer+"/interaction/")
		if err := reaches(providerAddr); err != nil {
			t.Errorf("during the login: %v", err)
		}
		if reaches(besideAddr) == nil {
			t.Error("the client reaches the provider's neighbour")
		}
		guest.logInAt(t, p, who)
		if who == "bob" {
			guest.arrives(t, "https://"+portalName+":8443/oidc/campus/callback")
			guest.expectPage(t, "refused", "cannot be used in this network")
			if s := d.client(t); s.State == session.Authenticated {
				t.Errorf("bob is logged in: %+v", s)
			}
			closed("after a login that was refused")
			browsertest.Call(t, guest.ctx, devnet.ClearBrowserCookies, cdp.Empty{}) // the provider remembers him
		}
	}
	guest.arrives(t, "https://"+portalName+":8443/status")
	guest.expectPage(t, "status", "alice@example.org", "some.site")
	if s := d.client(t); s.State != session.Authenticated || s.User != "alice@example.org" {
		t.Errorf("the session is %+v", s)
	}
	if err := errors.Join(reaches(providerAddr), reaches(besideAddr)); err != nil {
		t.Errorf("online: %v", err)
	}
	guest.navigate(t, chromedp.Click("form > button"))
	guest.arrives(t, login)
	closed("after the log-out")
}
