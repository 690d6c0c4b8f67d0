package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// outside is the Internet behind the gateway, in the namespace "server": a RADIUS server, a DNS server that answers
// 192.0.2.2 and outside6 for every name, and the web there.
const (
	outside  = "192.0.2.2"
	outside6 = "2001:db8:9::2"
)

// The portal, for clients by IPv4 and by IPv6.
const (
	home  = "http://10.1.0.1:8080"
	home6 = "http://[2001:db8:1::1]:8080"
)

// spawn runs a program in a namespace until the test ends.
func spawn(t *testing.T, namespace string, argv ...string) {
	t.Helper()
	netnstest.Background(t, exec.Command("ip", append([]string{"netns", "exec", namespace}, argv...)...))
}

var eventually = netnstest.Until

// startOutside starts RADIUS, DNS and web. alice's password is "correct horse". told is the file with what RADIUS was
// told in accounting.
func startOutside(t *testing.T) (secret, told string) {
	t.Helper()
	dir := t.TempDir()
	conf := struct {
		Dir, Secret string
		Auth, Acct  netip.AddrPort
		Log         bool
		Passwords   []string
		Long        string
	}{Dir: dir, Secret: "a secret of 24 characters", Auth: netip.MustParseAddrPort(outside + ":1812"),
		Acct: netip.MustParseAddrPort(outside + ":1813"), Log: true}
	for _, name := range []string{"radiusd.conf", "users"} {
		tmpl, err := template.ParseFiles(filepath.Join("radius", "testdata", name))
		must(t, err)
		var text strings.Builder
		must(t, tmpl.Execute(&text, conf))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600))
	}
	spawn(t, "server", "env", internetEnv+"=1", os.Args[0])
	spawn(t, "server", "freeradius", "-f", "-l", "stdout", "-d", dir)
	spawn(t, "server", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
		"--no-hosts",
		"--bind-interfaces", "--listen-address="+outside, "--address=/#/"+outside, "--address=/#/"+outside6)
	eventually(t, "RADIUS, DNS and web", func() bool {
		out, err := try(`ip netns exec server ss -Hltun`)
		return err == nil && strings.Contains(out, outside+":1813") && strings.Contains(out, outside+":53") &&
			strings.Contains(out, "*:80")
	})
	return conf.Secret, filepath.Join(dir, "told")
}

// internetEnv makes the test binary the web server of a namespace, in its own process, because a gateway's must not
// have threads in other namespaces.
const internetEnv = "GATEWAY_TEST_INTERNET"

func serveInternet() {
	fmt.Fprintln(os.Stderr, "serving the web:", http.ListenAndServe(":80", http.HandlerFunc(internet)))
	os.Exit(1)
}

// internet serves every web site.
func internet(w http.ResponseWriter, r *http.Request) {
	switch host, _, _ := strings.Cut(r.Host, ":"); host {
	case "connectivitycheck.gstatic.com":
		w.WriteHeader(http.StatusNoContent)
	case "captive.apple.com":
		fmt.Fprint(w, "<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>")
	case "www.msftconnecttest.com":
		fmt.Fprint(w, "Microsoft Connect Test")
	default:
		if r.URL.Path != "/path" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>Today</title></head>
<body><h1>The news on %s</h1><!-- %s --></body></html>`, host, strings.Repeat("so much of it ", 20_000))
	}
}

// sheets are the probes by which devices detect a captive portal, and the beginning of the answer when they are online:
// status, then body.
var sheets = map[string]struct{ url, online string }{
	"Android": {"http://connectivitycheck.gstatic.com/generate_204", "204 "},
	"iOS":     {"http://captive.apple.com/hotspot-detect.html", "200 <HTML><HEAD><TITLE>Success"},
	"Windows": {"http://www.msftconnecttest.com/connecttest.txt", "200 Microsoft Connect Test"},
}

// checkSheets checks the results of the client's probes at a portal.
func checkSheets(t *testing.T, portal, phase string, online bool) {
	t.Helper()
	for device, s := range sheets {
		body := filepath.Join(t.TempDir(), "body")
		code := sh(t, curl+`-o `+body+` -w '%{http_code} %{redirect_url}' `+s.url)
		text, err := os.ReadFile(body)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		got := code[:3] + " " + string(text)
		switch {
		case online && !strings.HasPrefix(got, s.online):
			t.Errorf("%s, %s: %q, so the device thinks that it is captive", phase, device, got)
		case !online && !strings.HasPrefix(code, "302 "+portal+"/login"):
			t.Errorf("%s, %s: %q %q, so no sign-in sheet opens", phase, device, code, text)
		}
	}
	captive := sh(t, curl+`-g -H 'Accept: application/captive+json' `+portal+`/api/captive-portal`)
	if want := regexp.MustCompile(fmt.Sprintf(`"captive":\s*%v`, !online)); !want.MatchString(captive) {
		t.Errorf("%s, the captive portal API says %s", phase, captive)
	}
}
