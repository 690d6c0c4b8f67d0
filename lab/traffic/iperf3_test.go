package traffic

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func readReport(t testing.TB, name string) Iperf3Report {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata/iperf3", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ParseIperf3(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// The reports were recorded with iperf3 3.12 over loopback; the expected figures
// are read off the files by eye.
func TestParseIperf3(t *testing.T) {
	for name, want := range map[string]Iperf3Report{
		"tcp_up": {Bytes: 6291456, SentBytes: 6291456, Seconds: 1.00076, BitsPerS: 50293424.997002274, Congestion: "cubic",
			LocalCPUPct: 2.8664709102672572, PeerCPUPct: 0.29707036460815789},
		"udp_loss": {Bytes: 1271344, SentBytes: 2497800, Seconds: 1.030507, BitsPerS: 9869658.3332282063, Retransmits: -1,
			Datagrams: 1725, Lost: 847, LossRatio: 847. / 1725, JitterMs: 0.4279278896613633,
			LocalCPUPct: 3.6929849264698542, PeerCPUPct: 1.6812952746927508},
		"busy":          {Retransmits: -1, Error: "the server is busy running a test. try again later"},
		"refused":       {Retransmits: -1, Error: "unable to connect to server: Connection refused"},
		"killed_server": {Retransmits: -1, Error: "control socket has closed unexpectedly"},
		"interrupted": {SentBytes: 6291456, Seconds: 0.997569, LocalCPUPct: 3.1034030378078592, Congestion: "bbr",
			Error: "interrupt - the client has terminated"},
	} {
		if got := readReport(t, name); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

func TestParseIperf3Downloads(t *testing.T) {
	for _, name := range []string{"tcp_down", "tcp_fq", "udp_up", "udp_down"} {
		r := readReport(t, name)
		if r.Error != "" || r.Bytes == 0 || r.Bytes > r.SentBytes || r.Seconds < 0.9 {
			t.Errorf("%s: %+v", name, r)
		}
		if udp := strings.HasPrefix(name, "udp"); udp != (r.Datagrams > 0) || udp != (r.Retransmits < 0) {
			t.Errorf("%s: datagrams %d, retransmits %d", name, r.Datagrams, r.Retransmits)
		}
	}
	// What the refusal in Args rests on: 50 Mbit/s of socket pacing were asked for.
	if r := readReport(t, "tcp_fq_down"); r.BitsPerS < 1e9 {
		t.Errorf("a download under --fq-rate was paced: %+v", r)
	}
}

func TestParseIperf3Refuses(t *testing.T) {
	for _, text := range []string{"", "null", "{}", "iperf3: error", `{"start":{},"end":{}}`, `{"start":{},"end":{"sum_sent":{"bytes":-5}},"error":"x"}`,
		`{"start":{},"end":{"sum":{"lost_packets":3,"packets":2},"sum_received":{"seconds":1}}}`} {
		if r, err := ParseIperf3(strings.NewReader(text)); err == nil {
			t.Errorf("%q gave %+v", text, r)
		}
	}
}

func FuzzParseIperf3(f *testing.F) {
	files, err := filepath.Glob("testdata/iperf3/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no recorded reports", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseIperf3(strings.NewReader(text))
		if err != nil {
			return
		}
		if err := r.plausible(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		if r.LossRatio < 0 || r.LossRatio > 1 {
			t.Errorf("loss ratio %g", r.LossRatio)
		}
	})
}

func TestIperf3Args(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.1")
	local := netip.MustParseAddr("192.0.2.7")
	for _, c := range []struct {
		client Iperf3Client
		want   string // "" is an error
	}{
		{Iperf3Client{Server: ip, RateBps: 5e6, Local: local},
			"iperf3 -c 192.0.2.1 -p 5201 -t 10 -l 63712 -i 0 --connect-timeout 5000 --json -C cubic -b 5000000 -B 192.0.2.7"},
		{Iperf3Client{Server: ip, Port: 6000, RateBps: Share(1e7, 3), Pacing: PaceSocket, Seconds: 3},
			"iperf3 -c 192.0.2.1 -p 6000 -t 3 -l 63712 -i 0 --connect-timeout 5000 --json -C cubic -b 0 --fq-rate 3333333"},
		{Iperf3Client{Server: ip, RateBps: 2e6, UDP: true, Direction: Down},
			"iperf3 -c 192.0.2.1 -p 5201 -t 10 -l 1448 -i 0 --connect-timeout 5000 --json -u -b 2000000 -R"},
		{Iperf3Client{Server: ip, RateBps: 2e6, Pacing: PaceSocket, Direction: Down}, ""},
		{Iperf3Client{Server: ip, Pacing: PaceSocket}, ""},
		{Iperf3Client{Server: ip, Direction: "sideways"}, ""},
		{Iperf3Client{RateBps: 1}, ""},
		{Iperf3Client{Server: ip, UDP: true, Bytes: 70000}, ""},
	} {
		argv, err := c.client.Args()
		if got := strings.Join(argv, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v:\n got %q, %v\nwant %q", c.client, got, err, c.want)
		}
	}
	if got := (Iperf3Server{Bind: local, Port: 7}).Args(); !slices.Equal(got, strings.Fields("iperf3 -s -p 7 --idle-timeout 30 -B 192.0.2.7")) {
		t.Errorf("server: %q", got)
	}
}

// TestIperf3Runs puts the argument vectors to the installed iperf3.
func TestIperf3Runs(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed")
	}
	lo := netip.MustParseAddr("127.0.0.1")
	s := newSpace(t)
	s.run(t, "ip", "link", "set", "lo", "up")
	server := Iperf3Server{Bind: lo, Port: 5301}.Args()
	cmd := exec.Command(server[0], server[1:]...)
	s.do(func() {
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for _, c := range []Iperf3Client{
		{Direction: Up}, {Direction: Down}, {UDP: true}, {UDP: true, Direction: Down}, {Pacing: PaceSocket},
	} {
		c.Server, c.Port, c.Local, c.RateBps, c.Seconds = lo, 5301, lo, 4e7, 1
		argv, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		r := runIperf3(t, s, argv)
		// Not paced it would be a hundred times as much; a busy machine makes it less.
		if r.Error != "" || r.Bytes == 0 || r.BitsPerS > 6e7 {
			t.Errorf("%q: %+v", argv, r)
		}
		if !c.UDP && r.Congestion != "cubic" {
			t.Errorf("%q: sent under %s", argv, r.Congestion)
		}
	}
}

// runIperf3 tries again while the server is still starting or ending a test.
func runIperf3(t *testing.T, s *space, argv []string) (r Iperf3Report) {
	t.Helper()
	for range 50 {
		var out []byte
		s.do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			out, _ = exec.CommandContext(ctx, argv[0], argv[1:]...).Output() // exit 1 comes with a report
		})
		var err error
		if r, err = ParseIperf3(strings.NewReader(string(out))); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
		if !strings.Contains(r.Error, "refused") && !strings.Contains(r.Error, "busy") {
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
	return r
}
