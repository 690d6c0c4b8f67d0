package gateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	devnet "github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// shotsEnv names a folder that gets screenshots of the pages.
const shotsEnv = "GATEWAYD_TEST_SHOTS"

// wanted is the page the person asks for, and secure one that no portal can answer for.
const (
	wanted = "http://some.site/path"
	secure = "https://some.site/path"
)

// person is a user with a browser on the client's machine.
type person struct {
	ctx         context.Context
	name        string // of the screenshots
	screenshots int
}

// newPerson is newVisitor, and fails the test where the pages make Chromium complain.
func newPerson(t *testing.T, name string, width, height int64) *person {
	t.Helper()
	p := newVisitor(t, name, width, height)
	must(t, chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok && !strings.Contains(e.Entry.URL, "favicon.ico") &&
			e.Entry.URL != secure {
			t.Errorf("%s: the console says %s (%s)", name, e.Entry.Text, e.Entry.URL)
		}
	}))
	browsertest.Call(t, p.ctx, log.Enable, cdp.Empty{})
	return p
}

// newVisitor starts Chromium in the client's namespace, with the namespace's DNS and nothing else: whatever it loads
// went through the gateway.
func newVisitor(t *testing.T, name string, width, height int64) *person {
	t.Helper()
	inside := filepath.Join(t.TempDir(), "chromium-inside")
	script := "#!/bin/sh\nexec ip netns exec client " + browsertest.Program(t) + " \"$@\"\n"
	must(t, os.WriteFile(inside, []byte(script), 0o755))
	within, late := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	t.Cleanup(late)
	ctx := browsertest.Start(t, within, inside)
	browsertest.Size(t, ctx, width, height)
	browsertest.Call(t, ctx, devnet.Enable, devnet.EnableParams{})
	return &person{ctx: ctx, name: name}
}

// navigate does something that ends in another page, and says where that is once that page has been drawn: until then
// what is to be clicked may move.
func (p *person) navigate(t *testing.T, steps ...chromedp.Action[chromedp.Void]) string {
	t.Helper()
	if _, err := chromedp.RunResponse(p.ctx, steps...); err != nil {
		t.Fatal(err)
	}
	browsertest.Drawn(t, p.ctx)
	return p.reads(t, "location.href")
}

// reads evaluates an expression to a text.
func (p *person) reads(t *testing.T, script string) string {
	t.Helper()
	return browsertest.Eval[string](t, p.ctx, script)
}

// expectPage holds that the page fits its screen and says something, and takes its picture where that is wanted.
func (p *person) expectPage(t *testing.T, page string, texts ...string) {
	t.Helper()
	body := p.reads(t, "document.body.innerText")
	for _, text := range texts {
		if !regexp.MustCompile(text).MatchString(body) {
			t.Errorf("%s, %s: no %q on the page:\n%s", p.name, page, text, body)
		}
	}
	if got := p.reads(t, "String(document.documentElement.scrollWidth <= innerWidth)"); got != "true" {
		t.Errorf("%s, %s: the page has to be scrolled sideways", p.name, page)
	}
	dir := os.Getenv(shotsEnv)
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	must(t, err)
	p.screenshots++
	must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", p.name, p.screenshots, page)), picture, 0o644))
}

// milano is the configuration of a café with a RADIUS server, and further keys after those of [lan].
func milano(t *testing.T, dir, secret, keys string) *config.Config {
	t.Helper()
	return milanoWithout(t, dir, secret, keys+"\n[portal]\ntitle = \"Café Milano\"\n")
}

// milanoWithout is milano without the pages' title.
func milanoWithout(t *testing.T, dir, secret, keys string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, "gatewayd.toml"), fmt.Appendf(nil, `
state_dir = "%[1]s/state"
run_dir = "%[1]s"
[lan]
interface = "lan0"
address = "10.1.0.1/24"
%[4]s
[wan]
interface = "wan0"
[dns]
upstreams = ["%[2]s"]
[auth]
methods = ["radius"]
[radius]
method = "chap"
[radius.primary]
address = "%[2]s:1812"
secret = "%[3]s"
[datapath]
pin_dir = "/sys/fs/bpf/test"
`, dir, outside, secret, keys))
	must(t, err)
	return cfg
}

// resolveAt has a resolver answer the client's programs.
func resolveAt(t *testing.T, resolver string) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(conf, []byte("nameserver "+resolver+"\n"), 0o644))
	sh(t, "mount --bind "+conf+" /etc/resolv.conf") // seen by the tests' own mount namespace alone
	t.Cleanup(func() { sh(t, "umount /etc/resolv.conf") })
}

// TestBrowserLogin: a phone and then a laptop lease an address, are redirected, mistype the password, log in at
// RADIUS, read, and log out.
func TestBrowserLogin(t *testing.T) {
	network(t)
	dir := t.TempDir()
	secret, _ := startOutside(t)
	cfg := milano(t, dir, secret, "")
	t.Cleanup(func() { must(t, Detach(cfg, false)) }) // once it has ended
	d := serve(t, cfg)
	addr := lease(t)
	// The client's resolver is the gateway, as its lease says.
	resolveAt(t, "10.1.0.1")
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"laptop", 1280, 800}} {
		t.Run(screen.name, func(t *testing.T) {
			visitAsPerson(t, d, newPerson(t, screen.name, screen.width, screen.height), home, addr)
		})
	}
}

// visitAsPerson is one person's stay. Long: the steps of one run, each of which needs the state that the one before
// left.
func visitAsPerson(t *testing.T, d daemon, p *person, portal, addr string) {
	checkSheets(t, portal, "before", false)
	if _, err := chromedp.RunResponse(p.ctx, chromedp.Navigate(secure)); err == nil ||
		!strings.Contains(err.Error(), "ERR_CONNECTION_REFUSED") {
		t.Errorf("asked for %s: %v", secure, err) // a browser that waits for it shows no portal meanwhile
	}
	login := portal + "/login?url=http%3A%2F%2Fsome.site%2Fpath"
	if address := p.navigate(t, chromedp.Navigate(wanted)); address != login {
		t.Fatalf("asked for %s, and came to %s", wanted, address)
	}
	p.expectPage(t, "login", "Café Milano", "Password")

	p.navigate(t, chromedp.SendKeys("#username", "alice"), chromedp.SendKeys("#password", "wrong\r"))
	p.expectPage(t, "wrong-password", "(?i)password is wrong|wrong.*password|not right|incorrect")
	if got := d.client(t).State; got == session.Authenticated {
		t.Fatal("a wrong password lets the client in")
	}
	checkSheets(t, portal, "after a wrong password", false)

	address := p.navigate(t, chromedp.SendKeys("#password", "correct horse\r"))
	if !strings.HasPrefix(address, portal+"/status") {
		t.Fatalf("logged in, and came to %s", address)
	}
	p.expectPage(t, "logged-in", "alice", "some.site")
	if s := d.client(t); s.State != session.Authenticated || s.User != "alice" || s.Addr.String() != addr {
		t.Errorf("the session is %+v", s)
	}
	checkSheets(t, portal, "logged in", true)

	if address := p.navigate(t, chromedp.Click("a.button")); address != wanted {
		t.Fatalf("went on to %s", address)
	}
	p.expectPage(t, "site", "The news on some.site")

	p.navigate(t, chromedp.Navigate(portal+"/status"))
	p.expectPage(t, "status", "alice", `(?i)received\s+[0-9.]+ kB`, `(?i)sent\s+[0-9.]+ k?B`,
		`(?i)(online|connected|time)[^\n]*\s+\d`)

	if address := p.navigate(t, chromedp.Click("form > button")); !strings.HasPrefix(
		address, portal+"/login") {
		t.Fatalf("logged out, and came to %s", address)
	}
	p.expectPage(t, "logged-out", "(?i)signed out|logged out|offline")
	if got := d.client(t).State; got == session.Authenticated {
		t.Error("the session goes on after the log-out")
	}
	checkSheets(t, portal, "logged out", false)
	if address := p.navigate(t, chromedp.Navigate(wanted)); address != login {
		t.Errorf("out again, asked for %s, and came to %s", wanted, address)
	}
}
