package portal

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// probe is a URL that an operating system or browser fetches to detect a captive portal,
// with the answer that means "not captive". Before login, probes are redirected like
// other requests, which opens the login page. After login, probes reach the Internet;
// one that was already on its way arrives here and gets its expected answer.
type probe struct {
	host, path  string // an empty host is any, an empty path is any
	status      int    // 0: a page that a captive device opens for its user
	contentType string
	body        string
	extra       [2]string // an additional header field
}

const (
	appleSuccess     = "<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>"
	firefoxCanonical = `<meta http-equiv="refresh" content="0;url=https://support.mozilla.org/kb/captive-portal"/>`
	nmOnline         = "NetworkManager is online\n"
	kindleStub       = "<html><body>81ce4465-7167-4dcb-835b-dcc9e44c112a</body></html>\n"
)

// probes are checked in order. Paths that several vendors use come before hosts.
var probes = []probe{
	// Android, Chrome, ChromeOS, Edge, Fire OS and many others.
	{path: "/generate_204", status: http.StatusNoContent},
	{path: "/gen_204", status: http.StatusNoContent},
	// iOS and macOS.
	{host: "captive.apple.com", status: http.StatusOK, contentType: "text/html", body: appleSuccess},
	{path: "/hotspot-detect.html", status: http.StatusOK, contentType: "text/html", body: appleSuccess},
	{path: "/library/test/success.html", status: http.StatusOK, contentType: "text/html", body: appleSuccess},
	// Windows; it opens /redirect in the browser of a captive user.
	{path: "/connecttest.txt", status: http.StatusOK, contentType: "text/plain", body: "Microsoft Connect Test"},
	{path: "/ncsi.txt", status: http.StatusOK, contentType: "text/plain", body: "Microsoft NCSI"},
	{host: "www.msftconnecttest.com", path: "/redirect"},
	{host: "ipv6.msftconnecttest.com", path: "/redirect"},
	{host: "www.msftncsi.com", path: "/redirect"},
	// Firefox.
	{host: "detectportal.firefox.com", path: "/success.txt", status: http.StatusOK, contentType: "text/plain",
		body: "success\n"},
	{host: "detectportal.firefox.com", path: "/canonical.html", status: http.StatusOK, contentType: "text/html",
		body: firefoxCanonical},
	// NetworkManager, as GNOME, Debian, Arch, Fedora and Ubuntu configure it.
	{path: "/check_network_status.txt", status: http.StatusOK, contentType: "text/plain", body: nmOnline},
	{host: "network-test.debian.org", path: "/nm", status: http.StatusOK, contentType: "text/plain", body: nmOnline},
	{host: "ping.archlinux.org", path: "/nm-check.txt", status: http.StatusOK, contentType: "text/plain", body: nmOnline},
	{host: "fedoraproject.org", path: "/static/hotspot.txt", status: http.StatusOK, contentType: "text/plain", body: "OK"},
	{host: "connectivity-check.ubuntu.com", path: "/", status: http.StatusNoContent,
		extra: [2]string{"X-NetworkManager-Status", "online"}},
	// KDE.
	{host: "networkcheck.kde.org", path: "/", status: http.StatusOK, contentType: "text/plain", body: "OK\n"},
	// Kindle.
	{path: "/kindle-wifi/wifistub.html", status: http.StatusOK, contentType: "text/html", body: kindleStub},
	{path: "/kindle-wifi/wifistub-eink.html", status: http.StatusOK, contentType: "text/html", body: kindleStub},
}

// probeNames are further names that devices ask for the paths of probes.
var probeNames = []string{
	// Google, Android of all makers, Chrome, Edge.
	"connectivitycheck.gstatic.com", "connectivitycheck.android.com", "clients1.google.com", "clients3.google.com",
	"clients4.google.com",
	"www.gstatic.com", "www.google.com", "www.google.cn", "www.googleapis.cn", "play.googleapis.com",
	"edge-http.microsoft.com",
	"connectivitycheck.grapheneos.network", "captiveportal.kuketz.de",
	// OPPO, OnePlus and realme; Huawei and Honor, Xiaomi, vivo, Samsung, Fire OS.
	"conn1.oppomobile.com", "conn2.oppomobile.com", "conn1.coloros.com", "conn2.coloros.com",
	"conn-service-eu-04.allawnos.com", "conn-service-us-05.allawnos.com",
	"conn-service-in-05.allawnos.com", "connectivitycheck.platform.hicloud.com",
	"connectivitycheck.platform.hihonorcloud.com", "connect.rom.miui.com",
	"wifi.vivo.com.cn", "connectivity.samsung.com.cn", "fireoscaptiveportal.com", "spectrum.s3.amazonaws.com",
	// Apple, which also asks at names of its own choice.
	"www.apple.com", "www.appleiphonecell.com", "www.itools.info", "www.ibook.info", "www.airport.us",
	"www.thinkdifferent.us", "captive.g.aaplimg.com",
	// Windows, Brave, GNOME, Nintendo, Steam.
	"www.msftncsi.com", "ipv6.msftncsi.com", "detectportal.brave-http-only.com", "nmcheck.gnome.org",
	"conntest.nintendowifi.net", "ctest.cdn.nintendo.net",
	"test.steampowered.com",
}

// ProbeNames are the names at which devices look for a login page, over HTTP.
func ProbeNames() []string {
	all := slices.Clone(probeNames)
	for _, p := range probes {
		if p.host != "" {
			all = append(all, p.host)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// findProbe returns the probe that matches a request, or nil. After a probe's redirect
// the user need not be taken back to the URL.
func findProbe(host, path string) *probe {
	name, port, found := strings.Cut(host, ":")
	if found && port != "80" {
		return nil
	}
	name = strings.TrimSuffix(name, ".")
	for i := range probes {
		p := &probes[i]
		if (p.path == "" || p.path == path) && (p.host == "" || strings.EqualFold(p.host, name)) {
			return p
		}
	}
	return nil
}

// answer sends an admitted client the answer that means "not captive".
func (p *probe) answer(w http.ResponseWriter) {
	h := w.Header()
	if p.contentType != "" {
		h.Set("Content-Type", p.contentType)
		h.Set("Content-Length", strconv.Itoa(len(p.body)))
	}
	if p.extra[0] != "" {
		h[p.extra[0]] = []string{p.extra[1]} // exact spelling, not canonicalised
	}
	w.WriteHeader(p.status)
	if p.body != "" {
		w.Write([]byte(p.body))
	}
}
