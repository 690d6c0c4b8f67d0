package cost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// The tests of this file change one figure of a good trial and call judge. It rejects the trial with reasons, or
// accepts it and may flag the device as saturated (at its limit) or lossy. "clean" in names of cases is the clean
// router.

// goodMeasurement returns a measurement that passes every self-test at 100 Mbit/s.
func goodMeasurement() Measurement {
	return Measurement{
		Seconds: 1, OfferedMbps: 100, DeliveredMbps: 99.5, LinkMbps: 104, AggregationFactor: 1, GeneratorCPU: 0.1,
		SegmentsPerBurst: 9, Packets: 9000,
		ThreadNs: map[string]int64{"napi/r0": 1e7, "napi/r1": 1e7, "daemon": 0},
		NAPINs:   2e7,
		Metrics:  map[string]float64{},
	}
}

// TestJudge: what the self-tests reject, and what they flag. Long: a line or two for each self-test.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*attempt)
		rejects []string // parts of the reasons, in order; none: accepted
		flags   []string
	}{
		"as it should be": {func(*attempt) {}, nil, nil},
		"short window": {
			func(t *attempt) { t.Clean.Seconds = 0.8 }, []string{"clean router: the window lasted 0.80 s"}, nil},
		"idle polling thread": {func(t *attempt) { t.DUT.ThreadNs["napi/r1"] = 0 }, []string{
			"device: polling thread napi/r1 did not run"}, nil},
		"idle daemon is fine": {func(t *attempt) { t.DUT.ThreadNs["daemon"] = 0 }, nil, nil},
		"busy generator": {
			func(t *attempt) { t.Clean.GeneratorCPU = 0.9 }, []string{"clean router: a traffic thread used 90 %"}, nil},
		"aggregated packets": {
			func(t *attempt) { t.DUT.AggregationFactor = 3 }, []string{"device: 3.00 frames per packet"}, nil},
		"a burst in one of two counts": {func(t *attempt) { t.DUT.Packets, t.DUT.AggregationFactor = 300, 1.06 }, nil, nil},
		"TUN halves the factor":        {func(t *attempt) { t.DUT.AggregationFactor = 0.6 }, nil, nil},
		"bulk without aggregation": {
			func(t *attempt) { t.Cell = t.Cell.With(result.Profile, result.Bulk) }, []string{"profile bulk wants"}, nil},
		"bulk": {func(t *attempt) {
			t.Cell = t.Cell.With(result.Profile, result.Bulk)
			t.Clean.AggregationFactor = 8
		}, nil, nil},
		"clean falls short": {
			func(t *attempt) { t.Clean.DeliveredMbps = 97 }, []string{"clean router: delivered 97.0 of 100 Mbit/s"}, nil},
		"clean loses": {
			func(t *attempt) { t.Clean.RetransmitRatio = 0.02 }, []string{"clean router: 2.00 % of the segments"}, nil},
		"broken streams": {func(t *attempt) { t.DUT.Broken, t.DUT.BrokenError = 3, "reset" }, []string{
			"device: 3 streams had ended: reset"}, nil},
		"more than offered": {func(t *attempt) { t.DUT.DeliveredMbps, t.DUT.LinkMbps = 120, 125 }, []string{
			"device: delivered 120.0 of 100 Mbit/s: more"}, nil},
		"clients cut off": {func(t *attempt) { t.DUT.RTT = result.RTT{Probes: 100, Lost: 30} }, []string{
			"device: 30 of 100 round-trip probes"}, nil},
		"two bursts short":   {func(t *attempt) { t.Clean.DeliveredMbps = 97.9 }, nil, nil},
		"steal is no reason": {func(t *attempt) { t.Clean.Machine.Steal = 30 }, nil, nil},
		"waits for its own":  {func(t *attempt) { t.DUT.WaitNs = 19e8 }, nil, nil},
		"waits for others": {
			func(t *attempt) { t.DUT.Metrics[WaitedForOthers] = 0.6 }, []string{"device: its threads waited 60 %"}, nil},
		"clean sends short bursts": {func(t *attempt) { t.Clean.SegmentsPerBurst = 7 }, []string{
			"clean router: 7.0 segments a burst, 9 were to be sent"}, nil},
		"bursts are not known":   {func(t *attempt) { t.Clean.SegmentsPerBurst = 0 }, nil, nil},
		"device shortens bursts": {func(t *attempt) { t.DUT.SegmentsPerBurst = 2 }, nil, nil},
		"device at its limit": {
			func(t *attempt) { t.DUT.DeliveredMbps = 60; t.DUT.ProcessNs = 8e8 }, nil, []string{result.FlagSaturated}},
		"at its limit ahead of IP": {func(t *attempt) { t.DUT.DeliveredMbps, t.DUT.AggregationFactor = 60, 1.4 }, nil,
			[]string{result.FlagSaturated}},
		"device is starved": {func(t *attempt) { t.DUT.DeliveredMbps = 60; t.DUT.Metrics[WaitedForOthers] = 0.9 },
			[]string{"device: its threads waited 90 %"}, []string{result.FlagSaturated}},
		"packets of before the window arrive": {func(t *attempt) { t.Clean.LinkMbps = 16 }, []string{
			"clean router: 99.5 Mbit/s arrived, 16.0 left the router"}, nil},
		"clean beside full CPU": {func(t *attempt) {
			t.DUT.DeliveredMbps, t.DUT.ProcessNs = 60, 8e8
			t.Clean.DeliveredMbps = 92
		}, nil, []string{result.FlagSaturated}},
		"clean too short beside full CPU": {func(t *attempt) {
			t.DUT.DeliveredMbps, t.DUT.ProcessNs = 60, 8e8
			t.Clean.DeliveredMbps = 80
		}, []string{"clean router: delivered 80.0"}, []string{result.FlagSaturated}},
		"both held up": {func(t *attempt) { t.DUT.DeliveredMbps = 96; t.Clean.DeliveredMbps = 96.5 },
			[]string{"clean router: delivered 96.5", "device: delivered 96.0"}, nil},
		"both starved unequally": {func(t *attempt) { t.DUT.DeliveredMbps, t.Clean.DeliveredMbps = 60, 92 }, []string{
			"clean router: delivered 92.0", "device: delivered 60.0",
			"machine: both sides fell short (60.0 and 92.0 Mbit/s) while their routers used 4 %"}, nil},
		"beside a full thread": {func(t *attempt) {
			t.DUT.DeliveredMbps, t.Clean.DeliveredMbps = 60, 92
			t.DUT.ThreadNs["daemon"] = 9e8
		}, nil, []string{result.FlagSaturated}},
		"device loses": {func(t *attempt) { t.DUT.RetransmitRatio = 0.03 }, nil, []string{result.FlagLossy}},
		"device loses datagrams": {func(t *attempt) { t.DUT.Datagrams = &Datagrams{Received: 980, Lost: 20} },
			nil, []string{result.FlagLossy}},
		"both lose datagrams": {func(t *attempt) {
			t.DUT.Datagrams = &Datagrams{Received: 980, Lost: 20}
			t.Clean.Datagrams = &Datagrams{Received: 985, Lost: 15}
		}, nil, nil},
		"nothing arrives": {
			func(t *attempt) { t.DUT.DeliveredMbps = 0 }, []string{"device: delivered 0.0 of 100 Mbit/s"}, nil},
		"nothing of a load that slack covers": {func(t *attempt) {
			for _, side := range []*Measurement{&t.DUT, &t.Clean} {
				side.OfferedMbps, side.DeliveredMbps = 0.1, 0
			}
		}, []string{"clean router: delivered 0.0 of 0.1 Mbit/s", "device: delivered 0.0 of 0.1 Mbit/s"}, nil},
		"A/A is never at a limit": {
			func(t *attempt) { t.AA = true; t.DUT.DeliveredMbps = 60 }, []string{"device: delivered 60.0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			trial := goodTrial()
			c.change(&trial)
			judge(&trial, conditions{
				window: time.Second, sent: experiment.Traffic{Kind: traffic.KindStreams, BurstSegments: 9}, routers: 1})
			if trial.Accepted != (len(c.rejects) == 0) || len(trial.Rejects) != len(c.rejects) {
				t.Fatalf("accepted %v, rejects %q; want %q", trial.Accepted, trial.Rejects, c.rejects)
			}
			for i, want := range c.rejects {
				if !strings.Contains(trial.Rejects[i], want) {
					t.Errorf("reason %q does not say %q", trial.Rejects[i], want)
				}
			}
			if !slices.Equal(trial.Flags, c.flags) {
				t.Errorf("flags %q, want %q", trial.Flags, c.flags)
			}
		})
	}
}

// TestJudgeSpeed: routers slowed to 25 % of a CPU must have had about that share of its time. If the two routers
// differ, the share that is further from 25 % counts. device and clean are their shares.
func TestJudgeSpeed(t *testing.T) {
	sent := experiment.Traffic{Kind: traffic.KindStreams, BurstSegments: 9}
	for _, tt := range []struct {
		device, clean float64
		accepted      bool
	}{{0.23, 0.27, true}, {0.25, 0.3, false}, {0.1, 0.25, false}} {
		trial := goodTrial()
		trial.DUT.Metrics = map[string]float64{result.RouterShare: tt.device}
		trial.Clean.Metrics = map[string]float64{result.RouterShare: tt.clean}
		judge(&trial, conditions{window: time.Second, sent: sent, routers: 1, speed: 0.25})
		if trial.Accepted != tt.accepted || !tt.accepted && !strings.Contains(trial.Rejects[0], "instead of 25.0 %") {
			t.Errorf("%+v: accepted %v, %q", tt, trial.Accepted, trial.Rejects)
		}
	}
	// If a slowed clean router does not deliver the load, the reason advises lower loads or a greater speed.
	for _, speed := range []float64{0, 1, 0.25} {
		trial := goodTrial()
		trial.DUT.Metrics = map[string]float64{result.RouterShare: max(speed, 0.25)}
		trial.Clean.Metrics = trial.DUT.Metrics
		trial.Clean.DeliveredMbps, trial.DUT.DeliveredMbps = trial.Clean.OfferedMbps/2, trial.DUT.OfferedMbps/2
		judge(&trial, conditions{window: time.Second, sent: sent, routers: 1, speed: speed})
		all := strings.Join(trial.Rejects, "\n")
		if slowed := speed == 0.25; trial.Accepted ||
			strings.Contains(all, "lower loads or a greater router.speed") != slowed {
			t.Errorf("beyond the load at speed %g: accepted %v, %q", speed, trial.Accepted, trial.Rejects)
		}
	}
}

// TestJudgeGathers: in profile per-packet, a device that aggregates packets itself may have several frames a packet.
// The clean router beside it may not.
func TestJudgeGathers(t *testing.T) {
	trial := goodTrial()
	trial.DUT.AggregationFactor = 3
	sent := experiment.Traffic{Kind: traffic.KindStreams, BurstSegments: 9}
	if judge(&trial, conditions{window: time.Second, sent: sent, aggregates: true, routers: 1}); !trial.Accepted {
		t.Errorf("rejected: %q", trial.Rejects)
	}
	trial.Clean.AggregationFactor = 3
	if judge(&trial, conditions{window: time.Second, sent: sent, aggregates: true, routers: 1}); len(trial.Rejects) != 1 ||
		!strings.HasPrefix(trial.Rejects[0], "clean router: 3.00 frames") {
		t.Errorf("reasons %q, want one of the clean router", trial.Rejects)
	}
}

// goodTrial passes all self-tests.
func goodTrial() attempt {
	return attempt{result.Trial{Cell: result.NewCell(result.Profile, result.PerPacket)},
		Sides{DUT: goodMeasurement(), Clean: goodMeasurement()}}
}
