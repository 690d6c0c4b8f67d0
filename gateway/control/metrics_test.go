// Tests of the metrics in Prometheus' format: scrape serves a Status and reads them.

package control

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/goldentest"
)

func fullStatus() Status {
	return Status{
		Version: "1.2.3", PID: 42, Since: time.Unix(1_700_000_000, 500e6), Datapath: "ebpf, redirect", LAN: "eth1",
		WAN: "eth0", Addresses: 65533,
		Sessions: map[State]int{session.Authenticated: 100_000, session.PreAuth: 3}, Leases: 100_005, Outbox: 2, Aside: 1,
		Unkept:  "write: no space left on device; free space",
		Traffic: Traffic{UpBytes: 1 << 40, UpPackets: 1 << 30, DownBytes: 1 << 45, DownPackets: 1 << 35},
		Packets: map[string]uint64{"forwarded": 1 << 31, "wrong-mac": 7, "ipv6": 9},
		Repairs: map[string]uint64{"taken-off": 3},
		DHCP:    map[string]uint64{"ack": 12}, DNS: map[string]uint64{"answered": 13, "refused": 1},
		Servers: []Server{
			{Server: "192.0.2.10:1812", Purpose: "logins", Asked: true, Why: "nothing listens there"},
			{Server: "192.0.2.11:1813", Purpose: "accounting", Up: true},
			// Both servers may have one port for accounting.
			{Server: "192.0.2.11:1813", Purpose: "accounting", Asked: true, Why: "nothing listens there"},
		},
		IPv6: &IPv6{
			Addresses: 300_000, Clients: 100_000, Contests: 1, Leases: map[string]int{"address": 17, "registered": 18},
			Delegated: []DelegatedPrefix{{
				Prefix:         netip.MustParsePrefix("2001:db8:a000::/56"),
				PreferredUntil: time.Unix(1_700_003_600, 0), ValidUntil: time.Unix(1_700_007_200, 0),
			}},
		},
		Neighbours: map[string]uint64{"taken": 19}, RouterAdv: map[string]uint64{"rogue": 20},
		DHCP6:  map[string]uint64{"solicit": 21},
		RADIUS: map[string]uint64{"accept": 14}, Portal: map[string]uint64{"login": 15, "redirect": 16},
	}
}

// scrape serves metrics and reads them as Prometheus does.
func scrape(t *testing.T, status func() Status) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	at, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- ServeMetrics(ctx, netip.MustParseAddrPort("127.0.0.1:0"), status, func(a net.Addr) { at <- a })
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	resp, err := http.Get("http://" + (<-at).String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return string(text)
}

func TestMetrics(t *testing.T) {
	text := scrape(t, fullStatus)
	var own strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "gatewayd_") {
			own.WriteString(line)
		}
	}
	const golden = "testdata/metrics.txt"
	goldentest.Compare(t, golden, own.String())
	if !strings.Contains(text, "process_cpu_seconds_total") || !strings.Contains(text, "go_goroutines") {
		t.Error("nothing of the process itself")
	}
	problems, err := promlint.New(strings.NewReader(own.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}

// TestMetricsSize: the number of metrics does not depend on the number of clients, and an
// invalid label value costs only its series.
func TestMetricsSize(t *testing.T) {
	text := scrape(t, func() Status {
		s := fullStatus()
		s.DNS["\xff"] = 1
		return s
	})
	if strings.Contains(text, "\xff") || !strings.Contains(text, `gatewayd_dns_total{event="answered"} 13`) {
		t.Errorf("%s", text)
	}
	few := fullStatus()
	few.Sessions = map[State]int{}
	count := func(s string) int { return strings.Count(s, "\ngatewayd_") }
	if a, b := count(scrape(t, fullStatus)), count(scrape(t, func() Status { return few })); a != b || a == 0 {
		t.Errorf("%d series with clients, %d without", a, b)
	}
}

func TestMetricsPortTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = ServeMetrics(
		t.Context(), netip.MustParseAddrPort(listener.Addr().String()), fullStatus, func(net.Addr) { t.Error("ready") })
	if err == nil || !strings.HasPrefix(err.Error(), "listening for Prometheus (metrics.listen): ") {
		t.Error(err)
	}
}
