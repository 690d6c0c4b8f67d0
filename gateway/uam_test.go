package gateway

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// elsewhereKeys sends clients to the portal elsewhere.
const elsewhereKeys = `[uam]
portal_url = "` + elsewhereURL + `"
secret = "shared with the portal"
schemes = ["chap"]
http = true
`

// startElsewhere starts RADIUS, DNS, the web and the small portal, and returns the RADIUS server's secret and the file
// with what it was told.
func startElsewhere(t *testing.T) (secret, told string) {
	t.Helper()
	secret, told = startOutside(t)
	spawn(t, "server", "env", elsewhereEnv+"=shared with the portal", os.Args[0])
	eventually(t, "the portal elsewhere", func() bool {
		out, err := try(`ip netns exec server ss -Hltn`)
		return err == nil && strings.Contains(out, "*:"+elsewherePort)
	})
	return secret, told
}

// TestPortalElsewhere: a person with a browser is sent to a portal outside that speaks CoovaChilli's protocol, mistypes
// the password, logs in by CHAP at RADIUS, reads, and logs out. Before the login nothing but the portal's own port is
// open. Long: the steps of one run, each of which needs the state that the one before left.
func TestPortalElsewhere(t *testing.T) {
	network(t)
	dir := t.TempDir()
	secret, told := startElsewhere(t)
	cfg := milanoWithout(t, dir, secret, elsewhereKeys)
	t.Cleanup(func() { must(t, Detach(cfg, false)) }) // once it has ended
	d := serve(t, cfg)
	lease(t)
	resolveAt(t, "10.1.0.1")
	p := newPerson(t, "elsewhere", 390, 844)
	heading := func() string { return p.reads(t, `document.querySelector("h1").innerText`) }
	reads := func(id string) string { return p.reads(t, `document.getElementById("`+id+`").innerText`) }

	at := p.navigate(t, chromedp.Navigate(wanted))
	if !strings.HasPrefix(at, elsewhereURL+"&res=notyet&uamip=10.1.0.1&uamport=3990&challenge=") ||
		heading() != "Log in" || reads("from") != wanted {
		t.Fatalf("asked for %s, and came to %s: %q", wanted, at, heading())
	}
	if clientReachesServer() {
		t.Error("the client reaches more of the portal's host than its port")
	}
	p.navigate(t, chromedp.SendKeys("#username", "alice"), chromedp.SendKeys("#password", "wrong\r"))
	if heading() != "Wrong" || d.client(t).State == session.Authenticated {
		t.Fatalf("a wrong password leads to %q, and the client is %s", heading(), d.client(t).State)
	}
	at = p.navigate(t, chromedp.SendKeys("#username", "alice"), chromedp.SendKeys("#password", "correct horse\r"))
	if heading() != "Online" || reads("user") != "alice" || reads("from") != wanted {
		t.Fatalf("the right password leads to %s: %q", at, heading())
	}
	s := d.client(t)
	if s.State != session.Authenticated || s.User != "alice" || !clientReachesServer() {
		t.Fatalf("the session is %+v", s)
	}
	if !strings.Contains(at, "&sessionid="+s.ID+"&") {
		t.Errorf("the portal was told another session than %s: %s", s.ID, at)
	}
	eventually(t, "the session in accounting", func() bool {
		text, err := os.ReadFile(told)
		return err == nil && strings.Contains(string(text), s.ID)
	})
	if at := p.navigate(t, chromedp.Navigate(wanted)); at != wanted {
		t.Errorf("online, and came to %s", at)
	}
	p.navigate(t, chromedp.Navigate("http://10.1.0.1:3990/status"))
	if heading() != "Online already" {
		t.Errorf("the status is %q", heading())
	}
	if p.navigate(t, chromedp.Click("#out")); heading() != "Logged out" || d.client(t).State == session.Authenticated {
		t.Errorf("the log-out leads to %q, and the client is %s", heading(), d.client(t).State)
	}
}
