package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/users"
	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// adminAddr is where the admin page of a world is: the gateway's address towards the server.
const adminAddr = "192.0.2.1:8444"

// serveAdmin adds an admin page to a world's configuration, with "ann", an admin, and "bob", who may look only.
func (w *world) serveAdmin() {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(w.t, err)
	hash := users.Hash("right")
	for name, text := range map[string][]byte{
		"admin.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"admin.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"admins":    fmt.Appendf(nil, "ann:%[1]s:admin\nbob:%[1]s:read-only\n", hash)} {
		must(w.t, os.WriteFile(filepath.Join(w.Dir, name), text, 0o600))
	}
	f, err := os.OpenFile(filepath.Join(w.Dir, "gatewayd.toml"), os.O_APPEND|os.O_WRONLY, 0)
	must(w.t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, `
[admin]
listen = %q
accounts = "admins"
tls_cert = "admin.pem"
tls_key = "admin.key"
`, adminAddr)
	must(w.t, err)
}

// operator is a browser beyond the WAN.
type operator struct {
	w   *world
	ctx context.Context
}

func (w *world) operator(t *testing.T) *operator {
	t.Helper()
	inside := filepath.Join(w.Dir, "chromium-inside")
	must(t, os.WriteFile(inside, fmt.Appendf(nil, "#!/bin/sh\nexec nsenter --net=/run/netns/%s-server %s \"$@\"\n", w.id,
		browsertest.Program(t)), 0o755))
	within, late := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	t.Cleanup(late)
	return &operator{w, browsertest.Start(t, within, inside, chromedp.Flag("ignore-certificate-errors", true))}
}

// goTo does something that ends in another page, and returns the page's text.
func (o *operator) goTo(step chromedp.Action[chromedp.Void]) string {
	o.w.t.Helper()
	if _, err := chromedp.RunResponse(o.ctx, step); err != nil {
		o.w.t.Fatal(err)
	}
	browsertest.Drawn(o.w.t, o.ctx)
	return browsertest.Eval[string](o.w.t, o.ctx, "document.body.innerText")
}

func (o *operator) fill(name, value string) {
	o.w.t.Helper()
	browsertest.Eval[bool](o.w.t, o.ctx, fmt.Sprintf("(document.getElementById(%q).value = %q, true)", name, value))
}

func (o *operator) logIn(name string) {
	o.w.t.Helper()
	o.goTo(chromedp.Navigate("https://" + adminAddr + "/login"))
	o.fill("name", name)
	o.fill("password", "right")
	o.goTo(chromedp.Click("form button"))
}

// TestAdminPage: an admin finds a client at the page and ends its session, which blocks the client, and extends
// another's; an account that may only look cannot. Clients do not reach the page, before their login and after it.
// Long: one story.
func TestAdminPage(t *testing.T) {
	w := newWorld(t)
	w.serveAdmin()
	w.start()
	one, two := w.client(), w.client()
	reach := curl + "-k -o /dev/null https://" + adminAddr + "/login"
	if out, err := one.try(reach); err == nil {
		t.Errorf("a client that is not logged in reaches the admin page: %s", out)
	}
	one.logIn("guest-one")
	two.logIn("guest-two")
	if out, err := one.try(reach); err == nil {
		t.Errorf("a client reaches the admin page: %s", out)
	}
	o := w.operator(t)
	o.logIn("ann")
	if text := o.goTo(chromedp.Navigate("https://" + adminAddr + "/sessions?q=guest-one")); !strings.Contains(text,
		one.addr.String()) || strings.Contains(text, two.addr.String()) {
		t.Errorf("the search shows\n%s", text)
	}
	o.goTo(chromedp.Click("tbody a"))
	browsertest.Eval[bool](t, o.ctx, "window.confirm = () => true, true")
	if text := o.goTo(chromedp.Click("button.stop")); !strings.Contains(text, "has ended") {
		t.Errorf("after the end the page says\n%s", text)
	}
	if s := one.session(); s.State == "authenticated" {
		t.Errorf("the client is %s", s.State)
	}
	o.goTo(chromedp.Navigate("https://" + adminAddr + "/sessions/" + two.addr.String()))
	o.fill("l-minutes", "60")
	o.goTo(chromedp.Click("form.fields:has(#l-minutes) button"))
	o.fill("addminutes", "30")
	o.goTo(chromedp.Click("form.fields:has(#addminutes) button"))
	if s := two.session(); s.Limits.SessionTimeoutSeconds != 5400 || s.State != "authenticated" {
		t.Errorf("the extended session has %+v", s.Limits)
	}
	o.goTo(chromedp.Click("header form button"))
	o.logIn("bob")
	o.goTo(chromedp.Navigate("https://" + adminAddr + "/sessions/" + two.addr.String()))
	if forms := browsertest.Eval[int](t, o.ctx, "document.querySelectorAll('main form').length"); forms > 0 {
		t.Errorf("an account that may only look has %d forms", forms)
	}
	code := w.sh("nsenter --net=/run/netns/$ID-server " + curl + "-k -u bob:right -X DELETE -o /dev/null " +
		"-w '%{http_code}' https://" + adminAddr + "/api/v1/sessions/" + two.addr.String())
	if code != "403" || two.session().State != "authenticated" {
		t.Errorf("bob's end is answered %s", code)
	}
	if text := w.sh(w.program + " status --socket $DIR/run/control.sock"); !strings.Contains(text, "2 accounts") {
		t.Errorf("status says\n%s", text)
	}
}
