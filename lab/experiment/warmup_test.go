package experiment_test

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestWarmupHoldsATurn: a load lasts until each of its streams has sent a burst before
// anything is measured, whatever the file says, and no longer than asked for otherwise.
func TestWarmupHoldsATurn(t *testing.T) {
	const crowd = "duts = [\"opennds\"]\nclients = [100, 300]\noffered_mbps = [1000, 100]\nclient.kind = \"persona\"\n"
	for name, tt := range map[string]struct {
		text      string
		clients   int
		mbps      float64
		direction string
		want      time.Duration
	}{
		"default, quick enough": {crowd, 100, 1000, result.Up, 500 * time.Millisecond},
		"default":               {crowd, 300, 100, result.Up, 1600 * time.Millisecond},
		"longer":                {crowd + "warmup = \"2s\"\n", 300, 100, result.Up, 2 * time.Second},
		"a few halves":          {crowd + "warmup = \"1300ms\"\n", 300, 100, result.Up, 1300 * time.Millisecond},
		"many in the window": {
			crowd + "warmup = \"1300ms\"\nwindow = \"500ms\"\n", 300, 100, result.Up, 1600 * time.Millisecond},
		"half of it each way": {crowd, 300, 100, result.Both, 3100 * time.Millisecond},
		"short bursts":        {crowd + "traffic.burst_segments = 10\n", 300, 100, result.Up, 500 * time.Millisecond},
		"datagrams":           {crowd + "traffic.protocol = \"udp\"\n", 300, 100, result.Up, 1600 * time.Millisecond},
		"at the clean router": {minimal + "[beside]\nclients = 200\n", 1, 100, result.Up, 1100 * time.Millisecond},
		"not by streams": {
			minimal + "traffic.kind = \"iperf3\"\n[beside]\nclients = 200\n", 1, 100, result.Up, 500 * time.Millisecond},
		"all there can be": {
			"duts = [\"opennds\"]\nclients = [65000]\noffered_mbps = [1000]\nclient.kind = \"persona\"\n", 65000, 1000,
			result.Up, 33200 * time.Millisecond},
	} {
		e, err := known.Parse("x.toml", []byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		device, clean := e.Sides(tt.clients)
		if got := e.WarmupOf(tt.mbps, tt.direction, device, clean); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestLoadsTooSmallForTheirStreams: a load that is too small for its streams is refused, with the smallest load that is
// enough.
func TestLoadsTooSmallForTheirStreams(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a turn takes hours": {
			"duts = [\"opennds\"]\nclients = [65000]\noffered_mbps = [1000, 10]\nclient.kind = \"persona\"\n",
			"x.toml:2: clients: 65000: at 10 Mbit/s, in bursts of 44 segments, it takes 55m13s until each has sent one, and a " +
				"load warms up for 10m0s at most: fewer clients, shorter bursts, or 56 Mbit/s"},
		"as said": {"duts = [\"opennds\"]\nclients = [65000]\noffered_mbps = [56]\nclient.kind = \"persona\"\n", ""},
		"hardly a datagram": {"duts = [\"opennds\"]\nclients = [100]\noffered_mbps = [1]\ntraffic.protocol = \"udp\"\n",
			"x.toml:1: traffic.burst_segments: 44: at 1 Mbit/s such a burst is sent every 510ms, and a window of 1s is to " +
				"hold 4: fewer segments, a longer window or more load"},
	} {
		_, err := known.Parse("x.toml", []byte(tt.text))
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}
