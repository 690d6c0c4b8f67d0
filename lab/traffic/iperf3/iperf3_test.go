package iperf3

import (
	"context"
	"encoding/json"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestIperf3Args: the argument vectors of iperf3's client and server. Combinations that iperf3 would silently ignore
// are errors.
func TestIperf3Args(t *testing.T) {
	ip := netip.MustParseAddrPort("192.0.2.1:5201")
	local := netip.MustParseAddr("192.0.2.7")
	for _, c := range []struct {
		client Client
		want   string // "" is an error
	}{
		{Client{Server: ip, RateBps: 5e6, Local: local, Seconds: 10},
			"iperf3 -c 192.0.2.1 -p 5201 -t 10 -l 63712 -i 0 --connect-timeout 5000 --json -C cubic -b 5000000 -B 192.0.2.7"},
		{Client{Server: netip.MustParseAddrPort("192.0.2.1:6000"), RateBps: 1e7 / 3., Paced: true, Seconds: 3},
			"iperf3 -c 192.0.2.1 -p 6000 -t 3 -l 63712 -i 0 --connect-timeout 5000 --json -C cubic -b 0 --fq-rate 3333333"},
		{Client{Server: ip, RateBps: 2e6, UDP: true, Direction: result.Down, Seconds: 10},
			"iperf3 -c 192.0.2.1 -p 5201 -t 10 -l 1448 -i 0 --connect-timeout 5000 --json -u -b 2000000 -R"},
		{Client{Server: ip, RateBps: 2e6, Paced: true, Direction: result.Down, Seconds: 10}, ""},
		{Client{Server: ip, Paced: true, Seconds: 10}, ""},
		{Client{Server: ip, Direction: "sideways", Seconds: 10}, ""},
		{Client{RateBps: 1, Seconds: 10}, ""},
		{Client{Server: ip, UDP: true, Bytes: 70000, Seconds: 10}, ""},
	} {
		argv, err := c.client.Args()
		if got := strings.Join(argv, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v:\n got %q, %v\nwant %q", c.client, got, err, c.want)
		}
	}
	if got := Server(netip.AddrPortFrom(local, 7)); !slices.Equal(
		got, strings.Fields("iperf3 -s -p 7 --idle-timeout 30 -B 192.0.2.7")) {
		t.Errorf("server: %q", got)
	}
}

// TestIperf3Runs starts the installed iperf3 with the argument vectors.
func TestIperf3Runs(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed")
	}
	lo := netip.MustParseAddr("127.0.0.1")
	s := netnstest.NewSpace(t)
	server := Server(netip.AddrPortFrom(lo, 5301))
	cmd := exec.Command(server[0], server[1:]...)
	s.Do(func() {
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for _, c := range []Client{
		{Direction: result.Up}, {Direction: result.Down}, {UDP: true}, {UDP: true, Direction: result.Down}, {Paced: true},
	} {
		c.Server, c.Local, c.RateBps, c.Seconds = netip.AddrPortFrom(lo, 5301), lo, 4e7, 1
		argv, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		r := runIperf3(t, s, argv)
		// The rate is 40 Mbit/s. Without it iperf3 would send a hundred times as much; on a busy machine it sends less.
		if got := r.End.Received; r.Error != "" || got.Bytes == 0 || got.BitsPerS > 6e7 {
			t.Errorf("%q: %+v", argv, r)
		}
		if !c.UDP && r.End.Congestion != "cubic" {
			t.Errorf("%q: sent under %s", argv, r.End.Congestion)
		}
	}
}

// report has the fields of a client's --json output that the test reads.
type report struct {
	Error string `json:"error"`
	End   struct {
		Received struct {
			Bytes    int64   `json:"bytes"`
			BitsPerS float64 `json:"bits_per_second"`
		} `json:"sum_received"`
		Congestion string `json:"sender_tcp_congestion"`
	} `json:"end"`
}

// runIperf3 tries again while the server is still starting or ending a test.
func runIperf3(t *testing.T, s *netnstest.Space, argv []string) (r report) {
	t.Helper()
	for range 300 {
		var out []byte
		s.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			out, _ = exec.CommandContext(ctx, argv[0], argv[1:]...).Output() // exit 1 comes with a report
		})
		r = report{}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
		if !strings.Contains(r.Error, "refused") && !strings.Contains(r.Error, "busy") {
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
	return r
}
