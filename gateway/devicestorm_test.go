// A benchmark of devices that come at once, beside people who log in at once.

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// stormClients come at once.
const stormClients = 10_000

// BenchmarkDevicesAtOnce has 10,000 clients with a lease come in at once, side by side in turn: devices, asked about at
// a FreeRADIUS by their MAC address; and people, who log in at the portal (two requests on one connection) with a name
// that the same server knows. Sessions are kept on the disk and accounted for; no packets are forwarded. It reports
// sessions a second. What the people's clients do costs this machine's CPUs too.
//
//	go test -run - -bench DevicesAtOnce -benchtime 5x -exec $PWD/.ci/apart ./gateway
func BenchmarkDevicesAtOnce(b *testing.B) {
	sh(b, "ip addr add 10.1.0.1/32 dev lo; ip route add local 10.1.0.0/16 dev lo")
	b.Cleanup(func() { sh(b, "ip route del local 10.1.0.0/16 dev lo; ip addr del 10.1.0.1/32 dev lo") })
	secret := stormServer(b)
	var devices, people time.Duration
	for range b.N {
		devices += comeIn(b, secret, "[devices]\nradius = true", func() {})
		people += comeIn(b, secret, "", func() { logAllIn(b) })
	}
	each := func(d time.Duration) float64 { return float64(stormClients*b.N) / d.Seconds() }
	b.ReportMetric(each(devices), "devices/s")
	b.ReportMetric(each(people), "logins/s")
	b.ReportMetric(people.Seconds()/devices.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// stormServer starts a FreeRADIUS that ends with the benchmark, and returns its secret.
func stormServer(b *testing.B) (secret string) {
	b.Helper()
	dir := b.TempDir()
	conf := struct {
		Dir, Secret, Long string
		Auth, Acct        netip.AddrPort
		Log               bool
		Passwords         []string
	}{Dir: dir, Secret: "a secret of 24 characters", Auth: netip.MustParseAddrPort("127.0.0.1:1812"),
		Acct: netip.MustParseAddrPort("127.0.0.1:1813")}
	for _, name := range []string{"radiusd.conf", "users"} {
		tmpl, err := template.ParseFiles(filepath.Join("radius", "testdata", name))
		must(b, err)
		var text strings.Builder
		must(b, tmpl.Execute(&text, conf))
		if name == "users" {
			text.WriteString("\nDEFAULT Service-Type == Call-Check, Auth-Type := Accept\n\tClass = 0x7476\n" +
				"DEFAULT User-Name =~ \"^guest-\", Cleartext-Password := \"right\"\n\tClass = 0x7476\n")
		}
		must(b, os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600))
	}
	server := exec.Command("freeradius", "-f", "-l", "stdout", "-d", dir)
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(b, server.Start())
	b.Cleanup(func() { server.Process.Kill(); server.Wait() })
	netnstest.Await(b, "FreeRADIUS", func() error {
		out, err := try("ss -Hlun")
		if err == nil && !strings.Contains(out, "127.0.0.1:1813") {
			err = errors.New("it does not listen")
		}
		return err
	})
	return conf.Secret
}

// comeIn returns how long clients that are there take to come in, all of them, at a gateway of their own that has no
// data path. log has people log in.
func comeIn(b *testing.B, secret, devices string, log func()) time.Duration {
	b.Helper()
	g := stormGateway(b, secret, devices)
	defer g.table.Close()
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	_, err := g.openRADIUS(ctx)
	must(b, err)
	defer g.radius.Close()
	_, err = g.openPortal(ctx)
	must(b, err)
	plain, err := portal.Listen(ctx, netip.MustParseAddrPort("10.1.0.1:8080"))
	must(b, err)
	all := portal.Listeners{Plain: []net.Listener{plain}}
	running.Go(func() { g.portal.Serve(ctx, all) })
	running.Go(func() { g.table.Run(ctx) })
	running.Go(func() { g.account(ctx) })
	begun := time.Now()
	o, err := g.openDevices(ctx) // which sees the devices that are there
	must(b, err)
	if o.close != nil {
		defer o.close()
	}
	log()
	for g.table.States()[session.Authenticated] < stormClients {
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

// stormGateway returns a gateway whose clients have a lease.
func stormGateway(b *testing.B, secret, devices string) *gateway {
	b.Helper()
	dir := b.TempDir()
	cfg, err := config.Parse(filepath.Join(dir, "gatewayd.toml"), fmt.Appendf(nil, `
state_dir = "%[1]s"
run_dir = "%[1]s"
[lan]
interface = "lo"
address = "10.1.0.1/16"
[wan]
interface = "wan0"
[dns]
upstreams = ["192.0.2.2"]
[auth]
methods = ["radius"]
[radius.primary]
address = "127.0.0.1"
secret = "%[2]s"
%[3]s
`, dir, secret, devices))
	must(b, err)
	g := newGateway(cfg, Daemon{Log: slog.New(slog.DiscardHandler)})
	g.table, err = session.Open(filepath.Join(dir, "sessions.db"), anyClient{}, g.log)
	must(b, err)
	g.table.OnEnd(g.sessionEnded)
	var leases sync.WaitGroup
	for i := range stormClients {
		leases.Go(func() {
			must(b, g.table.Lease(session.Key{MAC: macOf(i), Addr: stormAddr(i)}, "", time.Now().Add(time.Hour)))
		})
	}
	leases.Wait()
	return g
}

func stormAddr(client int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 1, 64 + byte(client>>8), byte(client)})
}

// logAllIn has a person log in with each client, a thousand at a time.
func logAllIn(b *testing.B) {
	b.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			for i := range next {
				if err := logOneIn(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range stormClients {
		next <- i
	}
	close(next)
	all.Wait()
}

// logOneIn asks for the login page and sends its form, on one connection.
func logOneIn(client int) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: stormAddr(client).AsSlice()}}
	conn, err := d.Dial("tcp", "10.1.0.1:8080")
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	exchange := func(request string) (status int, body string, err error) {
		if _, err := io.WriteString(conn, request); err != nil {
			return 0, "", err
		}
		r, err := http.ReadResponse(answers, nil)
		if err != nil {
			return 0, "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return r.StatusCode, string(text), err
	}
	_, page, err := exchange("GET /login HTTP/1.1\r\nHost: 10.1.0.1:8080\r\n\r\n")
	if err != nil {
		return err
	}
	_, token, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	form := fmt.Sprintf("token=%s&username=guest-%d&password=right", token, client)
	status, page, err := exchange(fmt.Sprintf("POST /login HTTP/1.1\r\nHost: 10.1.0.1:8080\r\nContent-Length: %d\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\n\r\n%s", len(form), form))
	if err == nil && status != http.StatusSeeOther {
		err = fmt.Errorf("the login of client %d is answered with %d:\n%s", client, status, page)
	}
	return err
}
