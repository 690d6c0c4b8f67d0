package experiment

import "testing"

// TestWarmupHoldsATurn: what would be rejected, by a self-test that says nothing of it,
// is refused with the warm-up that is needed.
func TestWarmupHoldsATurn(t *testing.T) {
	const crowd = "duts = [\"opennds\"]\nclients = [100, 300]\noffered_mbps = [1000, 100]\nclient.kind = \"persona\"\n"
	const took = ": a turn of all streams (clients = 300, 100 Mbit/s, bursts of 44 segments) takes 1.53s, and the first burst of each goes out in halves: want 1.6s"
	for name, tt := range map[string]struct{ text, want string }{
		"default":            {crowd, "x.toml:1: warmup: 500ms" + took},
		"too short":          {crowd + "warmup = \"1s\"\n", "x.toml:5: warmup: 1s" + took},
		"as said":            {crowd + "warmup = \"1600ms\"\n", ""},
		"a few halves":       {crowd + "warmup = \"1300ms\"\n", ""},
		"many in the window": {crowd + "warmup = \"1300ms\"\nwindow = \"500ms\"\n", "x.toml:5: warmup: 1.3s" + took},
		"half of it each way": {crowd + "warmup = \"2s\"\ndirections = [\"up\", \"both\"]\n",
			"x.toml:5: warmup: 2s: a turn of all streams (clients = 300, 100 Mbit/s, bursts of 44 segments) takes 3.06s, and the first burst of each goes out in halves: want 3.1s"},
		"short bursts": {crowd + "traffic.burst_segments = 10\n", ""},
		"datagrams":    {crowd + "traffic.protocol = \"udp\"\n", ""},
		"hardly a datagram": {"duts = [\"opennds\"]\nclients = [100]\noffered_mbps = [1]\ntraffic.protocol = \"udp\"\n",
			"x.toml:1: traffic.burst_segments: 44: at 1 Mbit/s such a burst is sent every 510ms, and a window of 1s is to hold 4: fewer segments, a longer window or more load"},
		"at the clean router": {minimal + "[beside]\nclients = 200\n",
			"x.toml:1: warmup: 500ms: a turn of all streams (clients = 200, 100 Mbit/s, bursts of 44 segments) takes 1.02s, and the first burst of each goes out in halves: want 1.1s"},
		"not by streams": {minimal + "traffic.kind = \"iperf3\"\n[beside]\nclients = 200\n", ""},
	} {
		_, err := Parse("x.toml", []byte(tt.text), known)
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}
