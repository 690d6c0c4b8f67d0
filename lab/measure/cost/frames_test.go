package cost

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// TestFramesOfEveryClient: frames of every client arrive at the end that the direction says, and only frames of the
// right size. One lab has clients with namespaces of their own (macvlan), the other has clients that share one
// (persona). receives says for the client host and for the server whether frames arrive there.
func TestFramesOfEveryClient(t *testing.T) {
	const clients, size = 4, 64
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	has := func(kind string) experiment.Side {
		return experiment.Side{Client: kind, Clients: clients, Traffic: experiment.Traffic{
			Kind: traffic.KindFrames, Protocol: experiment.ProtocolUDP, BurstSegments: 4, Gaps: traffic.GapsScattered,
			Frames: &frames.Source{Name: "64"},
		}}
	}
	one, other, err := bench.Labs{
		Backend: local, DUT: experiment.Clean, DUTLab: "a",
		Experiment: &experiment.Experiment{Topology: "portal", Client: experiment.Client{Hosts: 1}},
		Sides:      []experiment.Side{has(client.KindMacvlan), has(client.KindPersona)},
	}.OpenPair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	for _, s := range []*lab{{Bench: one}, {Bench: other}} {
		for direction, receives := range map[string][2]bool{
			result.Up: {false, true}, result.Down: {true, false}, result.Both: {true, true}} {
			t.Run(s.Side.Client+" "+direction, func(t *testing.T) { carryFrames(t, s, direction, receives, size) })
		}
	}
}

// carryFrames sends frames of size bytes through a lab until some of every client have arrived at each end that
// receives.
func carryFrames(t *testing.T, s *lab, direction string, receives [2]bool, size int64) {
	ctx := t.Context()
	if err := s.load(ctx, result.NewCell(result.OfferedMbps, 2, result.Direction, direction), 60); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.StopTraffic(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := s.mark(ctx); err != nil {
		t.Fatal(err)
	}
	ends := []*backend.Host{s.Hosts[0].Host, s.Server}
	stats := make([]agent.TrafficStats, len(ends))
	labtest.Await(t, "frames of every client", func() bool {
		found := true
		for i, h := range ends {
			var err error
			if stats[i], err = h.TrafficStats(ctx); err != nil {
				t.Fatal(err)
			}
			found = found && (!receives[i] || stats[i].Shares.Streams == s.Side.Clients && stats[i].Shares.Min > 0 &&
				stats[i].Frames.Delay.P99 > 0)
			found = found && (!receives[1-i] || stats[i].Datagrams.Sent > 0)
		}
		return found
	})
	for i, got := range stats {
		checkFrames(t, got, size, receives[i], receives[1-i])
	}
}

// checkFrames checks the counts of one end of the lab, which receives frames, sends them, or does both.
func checkFrames(t *testing.T, got agent.TrafficStats, size int64, receives, sends bool) {
	t.Helper()
	d := got.Datagrams
	if got.ReceivedBytes != d.Received*size || got.Broken > 0 {
		t.Errorf("%d bytes in %d frames of %d bytes; %d broken: %s", got.ReceivedBytes, d.Received, size, got.Broken,
			got.FirstError)
	}
	if opening := int64(4); !receives && d.Received > opening { // one frame of each client opens the way back
		t.Errorf("%d frames came against the direction, want at most %d", d.Received, opening)
	}
	if sends != (d.Sent > 0) || d.Sent > got.Frames.Intended {
		t.Errorf("%d frames were sent of %d that were due", d.Sent, got.Frames.Intended)
	}
}

// TestFrameSizesAreInOrder: a summary's cells are in the order of the experiment's frame sizes (listed). Without that
// list, sizes in bytes come first, and then named ones.
func TestFrameSizesAreInOrder(t *testing.T) {
	for name, c := range map[string]struct{ listed, want []string }{
		"as the experiment lists them": {
			[]string{"64", "imix", "1514", "caida"}, []string{"64", "imix", "1514", "caida"}},
		"without it, bytes, and then names": {nil, []string{"64", "1514", "caida", "imix"}},
	} {
		var trials []result.Trial
		for _, size := range []string{"imix", "1514", "caida", "64"} {
			trials = append(trials, attempt{Trial: result.Trial{
				Cell: result.NewCell(result.DUT, "gate", result.Clients, 1, result.FrameSize, size)}}.record())
		}
		var sizes []string
		for _, cell := range (Measure{}).Summarise(
			result.Run{Trials: trials, FrameSizes: c.listed}, analysis.Options{}).Cells {
			sizes = append(sizes, cell.Text(result.FrameSize))
		}
		if !slices.Equal(sizes, c.want) {
			t.Errorf("%s: %v, want %v", name, sizes, c.want)
		}
	}
}
