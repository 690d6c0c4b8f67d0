// Tests of the portal's start, end and log. start (world_test.go) serves a portal, whose table of clients is w.table;
// some tests call New, Run and Serve themselves. request and tryRequest send one request as a client, await waits for a
// condition, and writeCertificate makes a certificate for TLS.

package portal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

func TestRun(t *testing.T) {
	files, _ := writeCertificate(t, t.TempDir(), portalName, 1)
	cfg := Config{Address: portalAddr, Name: portalName, TLS: files, Methods: Methods{ClickThrough: true}}
	p, err := New(cfg, &table{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	await(t, "the portal to listen", func() bool {
		_, err := tryRequest(clientA, base+"/login", nil)
		return err == nil
	})
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), portalAddr.String()) {
		t.Errorf("a second portal at the same address: %v", err)
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	again, err := Listen(t.Context(), tlsAddr)
	if err != nil {
		t.Fatalf("the sockets are still open: %v", err)
	}
	again.Close()
}

// TestServeSaysWhatFailed: a broken listener ends Serve with its error.
func TestServeSaysWhatFailed(t *testing.T) {
	p, err := New(Config{Address: portalAddr, Methods: Methods{ClickThrough: true}}, &table{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), portalAddr)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := p.Serve(t.Context(), Listeners{Plain: []net.Listener{l}}); err == nil {
		t.Error("Serve on a closed listener returned no error")
	}
}

// TestDefectIsLogged: a panic is logged and affects its own request only.
func TestDefectIsLogged(t *testing.T) {
	var log logtest.Log
	w := start(t, Config{Log: log.Logger()})
	w.users.answers(nil, func(context.Context, int) { panic("a defect") })
	if r, err := tryRequest(clientA, base+"/login", loginForm(t, clientA, goodUser, goodPassword)); err == nil {
		t.Errorf("the request was answered: %s", r.Status)
	}
	if got := log.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "a defect") ||
		!strings.Contains(got, "login.go") {
		t.Errorf("the log does not say what happened and where:\n%s", got)
	}
	w.users.answers(nil, nil)
	logIn(t, clientA)
}

// TestLogInjection: clients' input cannot add lines to the log.
func TestLogInjection(t *testing.T) {
	var log logtest.Log
	start(t, Config{Log: log.Logger()})
	request(t, clientA, base+"/login", loginForm(t, clientA, "anna\nlevel=ERROR msg=forged", "x"))
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "level=ERROR msg=forged\n") {
			t.Errorf("log line %q", line)
		}
	}
	if !strings.Contains(log.String(), "log-in rejected") {
		t.Errorf("the rejection is not in the log:\n%s", log.String())
	}
}

func TestLogoutFails(t *testing.T) {
	w := start(t, Config{})
	browser := logIn(t, clientA)
	f := url.Values{"token": {token(t, clientA, "/status")}}
	w.table.fails(errors.New("disk full"))
	r := request(t, clientA, base+"/logout", f, browser)
	if r.StatusCode != 503 || !strings.Contains(r.body, english.FaultText) {
		t.Errorf("logout: %s", r.Status)
	}
	w.table.fails(fmt.Errorf("end the session: %w", session.ErrLater))
	if r := request(t, clientA, base+"/logout", f, browser); r.StatusCode != 303 || w.Stats().Logouts != 1 {
		t.Errorf("a logout that is not on the disk yet: %s", r.Status)
	}
	f.Set("padding", strings.Repeat("x", maxFormBytes))
	if r := request(t, clientA, base+"/logout", f); r.StatusCode != 413 {
		t.Errorf("a large form: %s", r.Status)
	}
	bad := func(r *http.Request) { r.URL.RawQuery = "%zz" }
	if r := request(t, clientA, base+"/logout", url.Values{}, bad); r.StatusCode != 400 {
		t.Errorf("a malformed form: %s", r.Status)
	}
}

func TestHomeLeadsOn(t *testing.T) {
	start(t, Config{})
	if to := request(t, clientA, base+"/", nil).Header.Get("Location"); to != "/login" {
		t.Errorf("before login to %q", to)
	}
	logIn(t, clientA)
	if to := request(t, clientA, base+"/", nil).Header.Get("Location"); to != "/status" {
		t.Errorf("after login to %q", to)
	}
}
