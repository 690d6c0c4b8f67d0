// Tests of logins at portals that clients do by a command or over HTTP. Admission says how, localNetwork is a client in
// the test's own network.

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// localNetwork is a client that shares the test's own namespace. The portals'
// logins are tested where the portals are: in lab/dut.
type localNetwork struct{ net.Dialer }

func (*localNetwork) LocalIP() netip.Addr { return netip.MustParseAddr("127.0.0.1") }

func (*localNetwork) Exec(ctx context.Context, argv, env []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var _ Network = (*localNetwork)(nil)

func TestAdmitNone(t *testing.T) {
	if _, err := Login(t.Context(), &localNetwork{}, Admission{}, 1, 0); err != nil {
		t.Error(err)
	}
	if in, err := Status(t.Context(), &localNetwork{}, Admission{}, 1); !in || err != nil {
		t.Errorf("status is %v, %v; want true, nil", in, err)
	}
}

func TestAdmitCommand(t *testing.T) {
	dir := t.TempDir()
	session := filepath.Join(dir, "session")
	// The first login fails as a busy portal's does; the second opens a session.
	login := `[ -e "$0/tried" ] || { touch "$0/tried"; exit 1; }; echo "$GATEWEIGH_CLIENT $GATEWEIGH_CLIENT_IP" >"$0/session"`
	adm := Admission{
		Kind:   AdmitCommand,
		Login:  []string{"sh", "-c", login, dir},
		Status: []string{"test", "-e", session},
		Logout: []string{"rm", session},
	}
	n := &localNetwork{}
	if in, err := Status(t.Context(), n, adm, 7); in || err != nil {
		t.Fatalf("status before login is %v, %v; want false, nil", in, err)
	}
	if _, err := Login(t.Context(), n, adm, 7, 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(session); string(got) != "7 127.0.0.1\n" {
		t.Errorf("the login command saw client %q, want 7 127.0.0.1", got)
	}
	if in, err := Status(t.Context(), n, adm, 7); !in || err != nil {
		t.Errorf("status after login is %v, %v; want true, nil", in, err)
	}
	if err := Logout(t.Context(), n, adm, 7); err != nil {
		t.Error(err)
	}
	if in, err := Status(t.Context(), n, adm, 7); in || err != nil {
		t.Errorf("status after log-out is %v, %v; want false, nil", in, err)
	}
}

func TestLoginErrors(t *testing.T) {
	const dead = "127.0.0.1:1" // nobody listens there
	for name, tc := range map[string]struct {
		adm  Admission
		want []string
	}{
		"unknown kind": {Admission{Kind: "carrier-pigeon"}, []string{"carrier-pigeon", AdmitOpenNDS, AdmitUAM}},
		"no portal":    {Admission{Kind: AdmitUAM, Portal: dead}, []string{"client 3", dead, "/prelogin", "refused"}},
		"no openNDS": {
			Admission{Kind: AdmitOpenNDS, Portal: dead, Probe: "http://" + dead + "/"}, []string{"client 3", dead, "refused"}},
		"empty command": {Admission{Kind: AdmitCommand}, []string{"client 3", "login command is empty"}},
		"command fails": {
			Admission{Kind: AdmitCommand, Login: []string{"false"}, Status: []string{"false"}}, []string{`"false"`}},
		"command does nil": {
			Admission{Kind: AdmitCommand, Login: []string{"true"}, Status: []string{"false"}}, []string{"no session"}},
	} {
		t.Run(name, func(t *testing.T) {
			names := func(err error) bool {
				return !slices.ContainsFunc(tc.want, func(want string) bool { return !strings.Contains(err.Error(), want) })
			}
			// More time for a machine so busy that nothing was tried.
			for patience := 300 * time.Millisecond; ; patience *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := Login(ctx, &localNetwork{}, tc.adm, 3, 0)
				cancel()
				switch {
				case err == nil:
					t.Fatal("the login succeeded")
				case names(err):
					return
				case patience > 20*time.Second:
					t.Fatalf("error %q does not name all of %q", err, tc.want)
				}
			}
		})
	}
}

// lateNetwork has nothing listen until a client has been refused so many times.
type lateNetwork struct {
	localNetwork
	refusals int
	open     func()
}

func (n *lateNetwork) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.refusals--; n.refusals == 0 {
		n.open()
	}
	return n.localNetwork.DialContext(ctx, network, addr)
}

// A web server that is restarted refuses clients for longer than their first attempts take.
func TestLoginWaitsForRestart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	in := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"captive": false}`) })
	n := &lateNetwork{refusals: 2*loginAttempts + 1, open: func() { // an attempt asks for the page and for the session
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Error(err)
			return
		}
		s := &http.Server{Handler: in}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}}
	tries, err := Login(
		t.Context(), n, Admission{Kind: AdmitOpenNDS, Portal: at, Probe: "http://" + at + "/"}, 1, time.Minute)
	if err != nil || tries.Count <= loginAttempts {
		t.Errorf("%d attempts: %v", tries.Count, err)
	}
}

func TestUAMResponse(t *testing.T) {
	// Computed apart: md5(00 + password + md5(challenge + secret)).
	const want = "5a1a516448d66cb22c8d75cd48d58876"
	got, err := uamResponse("00112233445566778899AABBCCDDEEFF", "uam-test-secret", "not-a-secret")
	if err != nil || got != want {
		t.Errorf("response is %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", "zz", "0"} {
		if _, err := uamResponse(bad, "s", "p"); err == nil {
			t.Errorf("challenge %q was accepted", bad)
		}
	}
}

func TestFirstForm(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"openNDS splash page": {`<html><body><form action="/opennds_preauth/" method="get">
<input type="hidden" name="fas" value="aGlkPTE/Mg=="><input type="hidden" name="continue" value="clicked">
<input type="submit" value="Accept" ></form>
<form action="/opennds_preauth/"><input type="hidden" name="terms" value="yes"></form>`,
			"http://192.168.137.254:2050/opennds_preauth/?fas=aGlkPTE%2FMg%3D%3D&continue=clicked"},
		"scripted button first": {
			`<form><input type="button" onClick="go()"></form><FORM ACTION='next?x=1'><INPUT NAME=tok VALUE=7></FORM>`,
			"http://192.168.137.254:2050/opennds_preauth/next?tok=7"},
		"entities": {`<form action="http://p/?a&amp;b"><input name="q" value="&lt;&quot;&gt;"></form>`,
			"http://p/?q=%3C%22%3E"},
		"no form":   {`<p>Welcome</p>`, ""},
		"no action": {`<form><input name="a" value="b"></form>`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			page, _ := url.Parse("http://192.168.137.254:2050/opennds_preauth/?fas=x")
			got, err := firstForm(page, tc.body)
			if got != tc.want {
				t.Errorf("form is %q, want %q", got, tc.want)
			}
			if (tc.want == "") != errors.Is(err, errNoForm) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func FuzzFirstForm(f *testing.F) {
	f.Add(`<form action="/a"><input name="b" value="c"></form>`)
	f.Add(`<form action=':'><input name= value=></form>`)
	page, _ := url.Parse("http://192.0.2.1:2050/")
	f.Fuzz(func(t *testing.T, body string) {
		to, err := firstForm(page, body)
		if err != nil {
			return
		}
		// What a form yields must be askable for.
		if u, err := url.Parse(to); err != nil || !u.IsAbs() {
			t.Errorf("form of %q leads to %q: %v", body, to, err)
		}
	})
}

func FuzzParseCaptive(f *testing.F) {
	f.Add(`{ "captive": true, "user-portal-url": "http://192.0.2.1" }`)
	f.Add(`{"captive":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		captive, err := parseCaptive(body)
		// Only an answer that says so may let a client count as admitted.
		if err == nil && !captive && !strings.Contains(strings.ToLower(body), "false") {
			t.Errorf("%q counts as admitted", body)
		}
	})
}
