package cost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// TestShortConnectionsBesideStreams measures a trial in solo mode whose load has streams and short connections, in
// either direction. The trial must not be rejected for its segments per burst, because the counter also holds the short
// connections' segments. The results of the short connections must cover both turns: the device's and the clean
// router's.
func TestShortConnectionsBesideStreams(t *testing.T) {
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	opened, clean, err := bench.Labs{
		Backend: local, DUT: experiment.Clean, DUTLab: "a",
		Experiment: &experiment.Experiment{Topology: "portal", Client: experiment.Client{Hosts: 1}},
		Sides: slices.Repeat([]experiment.Side{{Client: client.KindMacvlan, Clients: 4, Traffic: experiment.Traffic{
			Kind: traffic.KindStreams, Protocol: experiment.ProtocolTCP, Pacing: experiment.PacingPaced, BurstSegments: 44,
			ShortPerSecond: 200, ShortBytes: 1000,
		}}}, 2),
	}.OpenPair(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close(); clean.Close() })
	s := &lab{Bench: opened} // stands for both sides
	e := &experiment.Experiment{
		Mode: result.ModeSolo, Windows: 1, Window: 500 * time.Millisecond, Warmup: 300 * time.Millisecond}
	both := pair{e: e, device: s, clean: s}
	for _, direction := range []string{result.Up, result.Down} {
		s.shorts = nil
		trial := attempt{Trial: result.Trial{
			Cell: result.NewCell(result.OfferedMbps, 40, result.Direction, direction, result.Profile, result.PerPacket)}}
		if trial.DUT, trial.Clean, err = both.measure(ctx, trial.Cell, 0); err != nil {
			t.Fatal(err)
		}
		judge(&trial, conditions{window: e.Window, sent: s.Side.Traffic, routers: 1, solo: true})
		if slices.ContainsFunc(trial.Rejects, func(text string) bool { return strings.Contains(text, "segments a burst") }) ||
			trial.Clean.SegmentsPerBurst != 0 {
			t.Errorf("%s: %g segments a burst, want 0 (not known) and no reject: %v", direction,
				trial.Clean.SegmentsPerBurst, trial.Rejects)
		}
		got := shortOf(s.shorts)
		if got == nil || got.Done == 0 || got.PerSecond <= 0 || got.Whole.P50 <= 0 {
			t.Fatalf("%s: results of the short connections: %+v", direction, got)
		}
		seconds := 0.0 // of both turns
		for _, load := range s.shorts {
			seconds += load[0].Seconds
		}
		if least := 2 * (e.Window + e.Warmup).Seconds(); seconds < least {
			t.Errorf("%s: results cover %.2f s, want at least %.2f s, both turns", direction, seconds, least)
		}
	}
}

// TestSegmentsPerBurst: the figure is 0, not known, when the senders' counters also hold TCP that is not the streams'
// data: acknowledgements, short connections, or the logins of guests.
func TestSegmentsPerBurst(t *testing.T) {
	sent := meter.SNMP{TCPOutSegs: 880, IPOutRequests: 30, UDPOut: 10}
	for name, c := range map[string]struct {
		side bench.Bench
		want float64
	}{
		"streams":           {bench.Bench{Load: agent.Traffic{Direction: result.Up}}, 44},
		"streams both ways": {bench.Bench{Load: agent.Traffic{Direction: result.Both}}, 0},
		"short connections": {bench.Bench{Load: agent.Traffic{Direction: result.Up, ShortPerSecond: 1}}, 0},
		"logins of guests":  {bench.Bench{Load: agent.Traffic{Direction: result.Up}, Guests: 1}, 0},
	} {
		if got := (&lab{Bench: &c.side}).segmentsPerBurst(sent); got != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}

// TestShortConnectionsOfTurnsAndHosts: shortOf adds up two loads (turns) of two client hosts each. Counts add up over
// all four, and the rate is that of both hosts together over the time of both loads.
func TestShortConnectionsOfTurnsAndHosts(t *testing.T) {
	turn := short.Stats{Seconds: 2, Done: 20, Failed: 1, FirstError: "refused", ConnectUs: []float64{3},
		FirstByteUs: []float64{4}, WholeUs: []float64{9}}
	next := short.Stats{
		Seconds: 3, Done: 30, Missed: 2, ConnectUs: []float64{5}, FirstByteUs: []float64{6}, WholeUs: []float64{11}}
	got := shortOf([][]short.Stats{{turn, turn}, {next, next}})
	if got.Done != 100 || got.Failed != 2 || got.Missed != 4 || got.PerSecond != 20 || got.FirstError != "refused" ||
		got.Whole.Max != 11 || got.Whole.P50 != 10 {
		t.Errorf("%+v", *got)
	}
	if shortOf(nil) != nil {
		t.Error("shortOf(nil) is not nil")
	}
}
