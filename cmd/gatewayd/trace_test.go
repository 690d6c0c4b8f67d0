// A test that captures a whole login. newWorld makes the host of a gateway with clients and a server, in namespaces,
// and starts RADIUS servers (world_test.go); wire captures packets at the client's link, at the uplink and at the
// loopback (capture_test.go).

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

const (
	traceDocument = "../../docs/login-trace.md"
	site          = "www.example.org"
)

// TestLoginTrace follows a client from its first DHCP message to its first page, on every data path, and compares the
// messages on the links with the document.
func TestLoginTrace(t *testing.T) {
	for _, tt := range []struct {
		name, path, section string
		others              bool
	}{
		{name: "ebpf", section: "The gateway leases"},
		{name: "tun", path: `kind = "tun"`, section: "The gateway leases"},
		{name: "tun-fast", path: "kind = \"tun\"\nfast = true", section: "The gateway leases"},
		{name: "nfqueue", path: `kind = "nfqueue"`, section: "Others lease", others: true},
		{name: "nfqueue-fast", path: "kind = \"nfqueue\"\nfast = true", section: "Others lease", others: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !*goldentest.Update {
				t.Parallel()
			}
			w := newWorld(t)
			w.Path, w.Others = tt.path, tt.others
			w.write("radius/gatewayd.toml", "gatewayd.toml", w)
			got := w.trace(strings.Contains(tt.path, "tun"))
			if *goldentest.Update {
				writeTrace(t, tt.section, got)
			}
			if diff := cmp.Diff(documented(t, tt.section), got); diff != "" {
				t.Errorf("%s (-document +seen):\n%s", tt.section, diff)
			}
		})
	}
}

// trace leads a client through a login, and returns the lines of its diagram. Long: the steps of one run, each of which
// needs the state that the one before left.
func (w *world) trace(ownLAN bool) []string {
	if ownLAN {
		w.sh("ip -n $ID-router addr flush dev lan0") // the address is the TUN device's
	}
	w.site()
	w.start()
	if w.Others {
		w.spawn("dnsmasq.log", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
			"--user=root", "--pid-file",
			"--bind-interfaces", "--interface=lan0", "--except-interface=lo", "--dhcp-range=10.1.0.10,10.1.0.99,1h",
			"--dhcp-leasefile="+w.Dir+"/leases",
			"--dhcp-authoritative", "--no-ping", "--server="+serverAddr.String())
	}
	ann := w.addUnaddressed()
	w.acct.awaitAccounting("Accounting-On", "") // is not part of a login
	wire := w.tap(ann)
	lines := []string{"Note over client: initial connection"}
	phase := func(name, last string) {
		w.t.Helper()
		eventually(w.t, "see "+last, func() error {
			if seen := wire.messages(false); !slices.ContainsFunc(
				seen, func(line string) bool { return strings.Contains(line, last) }) {
				return fmt.Errorf("saw only:\n%s", strings.Join(seen, "\n"))
			}
			return nil
		})
		wire.mark()
		lines = append(lines, wire.messages(true)...)
		if name != "" {
			lines = append(lines, "Note over client: "+name)
		}
	}
	ann.lease()
	phase("redirection", "DHCP Ack")
	ann.resolve()
	page := ann.sh(curl + "-L --resolve " + site + ":80:" + serverAddr.String() + " http://" + site + "/news")
	phase("authentication", "200 OK")
	form := tokenField.FindStringSubmatch(page)
	if form == nil {
		w.t.Fatalf("instead of the news there is no form to log in:\n%s", page)
	}
	if code := ann.sh(ann.fillIn(form[1], "ann")); code != "303" {
		w.t.Fatalf("the form is answered with %s", code)
	}
	phase("post-authentication", "Accounting-Response")
	if page := ann.sh(
		curl + "--resolve " + site + ":80:" + serverAddr.String() + " http://" + site + "/news"); page != "news" {
		w.t.Errorf("the news are %q", page)
	}
	phase("", "200 OK")
	return accountingLast(lines)
}

// accountingLast moves accounting, which runs in parallel, after the answer to the login.
func accountingLast(lines []string) []string {
	index := slices.IndexFunc(lines, func(line string) bool { return strings.HasSuffix(line, "/status") })
	if index < 0 {
		return lines
	}
	var before, accounting []string
	for _, line := range lines[:index] {
		if strings.Contains(line, "Accounting-") {
			accounting = append(accounting, line)
		} else {
			before = append(before, line)
		}
	}
	return slices.Concat(before, lines[index:index+1], accounting, lines[index+1:])
}

// site starts the resolver and the site beyond the gateway.
func (w *world) site() {
	w.spawnAt("server", "resolver.log", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
		"--no-hosts", "--user=root", "--pid-file",
		"--bind-interfaces", "--listen-address="+serverAddr.String(), "--address=/"+site+"/"+serverAddr.String())
	w.inHost("server", func() error {
		l, err := net.Listen("tcp4", net.JoinHostPort(serverAddr.String(), "80"))
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "news") })}
		go server.Serve(l)
		w.t.Cleanup(func() { server.Close() })
		return nil
	})
}

// resolve asks the gateway for the site's address.
func (c *client) resolve() {
	c.w.t.Helper()
	eventually(c.w.t, "resolve "+site, func() (err error) {
		var conn net.Conn
		c.w.inHost(c.host, func() (err error) {
			conn, err = net.Dial("udp4", "10.1.0.1:53")
			return err
		})
		defer conn.Close()
		answer, _, err := new(dns.Client).ExchangeWithConnContext(
			context.Background(), new(dns.Msg).SetQuestion(site+".", dns.TypeA), &dns.Conn{Conn: conn})
		if err == nil && len(answer.Answer) == 0 {
			err = fmt.Errorf("no address: %s", answer)
		}
		return err
	})
}

// documented returns the lines of a section's diagram.
func documented(t *testing.T, section string) []string {
	t.Helper()
	_, diagram, _ := cutDocument(t, section)
	var lines []string
	for line := range strings.Lines(diagram) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// writeTrace replaces the lines of a section's diagram.
func writeTrace(t *testing.T, section string, lines []string) {
	t.Helper()
	before, _, after := cutDocument(t, section)
	must(t, os.WriteFile(traceDocument, []byte(before+"    "+strings.Join(lines, "\n    ")+"\n"+after), 0o644))
}

// cutDocument returns the messages of a section's diagram, which follow its participants, and the text before and
// after.
func cutDocument(t *testing.T, section string) (before, diagram, after string) {
	t.Helper()
	text, err := os.ReadFile(traceDocument)
	must(t, err)
	head, rest, found := strings.Cut(string(text), "\n### "+section)
	participants, rest, opened := strings.Cut(rest, "    %% seen on the links\n")
	diagram, after, closed := strings.Cut(rest, "```\n")
	if !found || !opened || !closed {
		t.Fatalf("%s has no diagram under %q", traceDocument, section)
	}
	return head + "\n### " + section + participants + "    %% seen on the links\n", diagram, "```\n" + after
}
