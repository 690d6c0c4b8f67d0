package cost

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Limits of the self-tests of a trial. A trial outside of them did not measure the router under the stated load. It is
// rejected with the reason, kept in the raw data, and measured again.
const (
	minDelivered    = 0.98 // share of the offered load that must arrive
	minBeside       = 0.90 // the same, for a clean router beside a device that fills the routers' CPU
	minProfiled     = 0.50 // the same, for a clean router while perf runs
	maxGeneratorCPU = 0.80 // cores, busiest traffic thread
	minOffered      = 0.99 // share of the due frames that must be sent: frames not sent must not look like lost ones
	maxRetransmits  = 0.01 // share of segments sent again, or of UDP datagrams lost; a device with more is lossy
	minBurst        = 0.80 // of the burst length asked for, clean router
	maxPerPacket    = 1.05 // frames per packet in profile per-packet
	minBulk         = 1.50 // frames per packet in profile bulk
	maxWindowError  = 0.10 // length of the window against the one asked for
	maxDelivered    = 1.05 // of the offered load
	maxProbesLost   = 0.20 // of the round-trip probes: some clients are cut off
	slackBursts     = 2    // tolerance of rates, in bursts: a window may begin and end between two bursts
	// minFilled is the share of the routers' CPUs, used by both routers together, from which on CPU may limit them.
	minFilled = 0.70
)

// conditions are the conditions under which a window was measured.
type conditions struct {
	window      time.Duration      // asked for
	sent        experiment.Traffic // by the clean router's clients
	aggregates  bool               // the device aggregates packets itself
	routers     int                // CPUs that the routers run on
	speed       float64            // share of their CPU's time that slowed routers keep; 0: they are not slowed
	solo        bool               // the sides were loaded one after the other
	precedes    bool               // the lab goes before the machine's other programs
	failedProof bench.Rejects      // reasons by which the device itself shows that it is not set up as it should be
}

// judge applies the self-tests to a trial and sets Accepted, Rejects and Flags.
//
// The clean router is the control. If it delivers the load in full and without loss, and the generators have spare CPU,
// then a device that delivers less, or loses packets, has reached its limit. Such a trial is accepted with a flag.
//
// If both sides deliver too little although their routers did not fill the CPUs, something else held the machine up.
// That is no limit of the device, and the trial is rejected.
//
// Rates have a tolerance of some bursts (slack), because a window may begin and end between two bursts. Bursts that are
// too short are rejected: a congestion window shorter than a burst makes the routers forward other packets than the
// experiment asks for.
//
// Frames per packet have a tolerance too: links and IP layer are read one after the other, and a burst that passes in
// between is in one count only.
//
// In profile per-packet a device may aggregate packets itself. Its links do not: they have the settings of the clean
// router's links, which are tested. A device at its limit is not tested, because frames that it loses before the IP
// layer look like aggregation.
func judge(t *attempt, under conditions) {
	speed := under.speed
	// A delay of the machine affects both sides alike and is not a limit of the device.
	slack := under.slack()
	// short: the device delivered less than load and clean router let expect. starved: the clean router did too, although
	// the CPUs were not full.
	short := !t.AA && t.DUT.DeliveredMbps > 0 &&
		t.DUT.DeliveredMbps < minDelivered*min(t.DUT.OfferedMbps, t.Clean.DeliveredMbps)-slack
	starved := t.Clean.DeliveredMbps < minDelivered*t.Clean.OfferedMbps-slack && !under.routersFull(t)
	saturated := short && !starved
	t.Flags = nil
	if saturated {
		t.Flags = append(t.Flags, result.FlagSaturated)
	}
	if max(t.DUT.RetransmitRatio, t.DUT.LossRatio()) > maxRetransmits && !t.AA && t.Clean.LossRatio() <= maxRetransmits {
		t.Flags = append(t.Flags, result.FlagLossy)
	}
	share := routerShare(t.DUT)
	if other := routerShare(t.Clean); math.Abs(other-speed) > math.Abs(share-speed) { // in solo mode the two differ
		share = other
	}
	rejects, _ := bench.Judge( // none of these rules returns an error
		func(r *bench.Rejects) error { judgeSides(r, t, under, slack, saturated); return nil },
		bench.WaitRule(under.precedes, t.DUT.Metrics[WaitedForOthers], "device: its threads"),
		bench.RejectIf(short && starved,
			"machine: both sides fell short (%.1f and %.1f Mbit/s) while their routers used %.0f %% of their CPUs: something "+
				"else held them up",
			t.DUT.DeliveredMbps, t.Clean.DeliveredMbps, 100*routerCores(t)/float64(max(under.routers, 1))),
		bench.Window{WantedShare: speed, Share: share}.Speed, bench.RejectFor(under.failedProof...))
	t.Rejects, t.Accepted = rejects, len(rejects) == 0
}

// judgeSides applies the self-tests of each side.
func judgeSides(r *bench.Rejects, t *attempt, under conditions, slack float64, saturated bool) {
	sent, profile := under.sent, t.Cell.Text(result.Profile)
	device := judgedSide{t.DUT, "device", slack, "", r}
	clean := judgedSide{t.Clean, "clean router", slack, slowedAdvice(under.speed), r}
	clean.side(under.window)
	clean.control(profile, sent, saturated)
	device.side(under.window)
	clean.probes()
	if !saturated || t.DUT.Datagrams == nil {
		device.probes()
	}
	if !under.aggregates && !saturated {
		device.packets(profile, sent)
	}
	switch {
	case saturated:
	case t.AA:
		device.flow(minDelivered)
	default:
		device.load(minDelivered)
	}
}

// routerCores is the CPU time of both routers in cores.
func routerCores(t *attempt) float64 {
	cores := func(m Measurement) float64 { return float64(m.NAPINs+m.ProcessNs) / 1e9 / max(m.Seconds, 0.01) }
	return cores(t.DUT) + cores(t.Clean)
}

// routersFull reports whether both routers together filled their CPUs. It is false in solo mode, where the device
// cannot take CPU time from the clean router.
func (c conditions) routersFull(t *attempt) bool {
	full := minFilled * c.share(t)
	return !c.solo && (routerCores(t) >= full*float64(max(c.routers, 1)) || busiestThread(t) >= full)
}

// busiestThread is the CPU time of the busiest polling thread or process of a router, in cores. A thread that fills one
// of several CPUs limits its router although the others are idle.
func busiestThread(t *attempt) (most float64) {
	for _, m := range []Measurement{t.DUT, t.Clean} {
		for _, ns := range m.ThreadNs {
			most = max(most, float64(ns)/1e9/max(m.Seconds, 0.01))
		}
	}
	return most
}

// share is the share of their CPUs' time that the routers could use, after slowing down and steal.
func (c conditions) share(t *attempt) float64 {
	return min(routerShare(t.DUT), routerShare(t.Clean)) * (1 - max(t.DUT.Machine.Steal, t.Clean.Machine.Steal)/100)
}

// slack is the tolerance of a rate, Mbit/s: that of slackBursts bursts in one window.
func (c conditions) slack() float64 {
	return slackBursts * float64(c.sent.BurstSegments) * segmentMbit(c.sent) / c.window.Seconds()
}

// noiseOf is the CPU time that others took from the machine during a trial: of both sides the larger share.
func noiseOf(t attempt) bench.Noise {
	return bench.Noise{
		Steal:  max(t.DUT.Machine.Steal, t.Clean.Machine.Steal) / 100,
		Others: max(t.DUT.Metrics[result.OthersShare], t.Clean.Metrics[result.OthersShare]),
	}
}

// bias implements analysis.Input.Bias by bench.Noise.Bias.
func bias(n analysis.Noise, log, cores float64) float64 {
	return bench.Noise{Steal: float64(n.StealPct) / 100, Others: float64(n.OthersPct) / 100}.Bias(log, cores)
}

// noiseRise implements analysis.Input.Rise by bench.Noise.Rise.
func noiseRise(n analysis.Noise, cores float64) (rise, more float64) {
	return bench.Noise{Steal: float64(n.StealPct) / 100}.Rise(cores)
}

// routerShare is the share of its CPU's time that a slowed router had; 1 for one that was not slowed.
func routerShare(m Measurement) float64 {
	if share := m.Metrics[result.RouterShare]; share > 0 {
		return share
	}
	return 1
}

// slowedAdvice is the advice for a clean router on a slowed CPU that does not deliver the load, so that no device can
// be compared with it; "" for other routers.
func slowedAdvice(speed float64) string {
	if speed <= 0 || speed >= 1 {
		return ""
	}
	return fmt.Sprintf(", on %g %% of its CPU: choose lower loads or a greater router.speed", 100*speed)
}

// segmentMbit is the payload of a full segment, Mbit.
func segmentMbit(sent experiment.Traffic) float64 {
	return float64(traffic.SegmentBytes(traffic.EthernetMTU, sent.Protocol == experiment.ProtocolUDP)) * 8 / 1e6
}

// judgedSide is one side of a trial under its self-tests.
type judgedSide struct {
	Measurement
	name   string  // "device" or "clean router"
	slack  float64 // tolerance of rates, Mbit/s
	advice string  // ends the reason when it does not deliver its load
	*bench.Rejects
}

// control tests the clean router. If one of these tests fails, its figures are no reference for the device. saturated
// says that the device has reached its limit, which also takes CPU from the clean router.
func (j judgedSide) control(profile string, sent experiment.Traffic, saturated bool) {
	least := minDelivered
	if saturated {
		least = minBeside
	}
	j.packets(profile, sent)
	j.flow(least)
	j.AddIf(j.AggregationFactor < minBulk && profile == result.Bulk,
		"%s: %.2f frames per packet, profile bulk wants %.2f or more", j.name, j.AggregationFactor, minBulk)
	want := float64(sent.BurstSegments)
	j.AddIf(traffic.KindOf(sent.Kind).Bursts && j.SegmentsPerBurst > 0 && j.SegmentsPerBurst < minBurst*want,
		"%s: %.1f segments a burst, %.0f were to be sent: its streams have lost too many", j.name, j.SegmentsPerBurst, want)
}

// packets tests that profile per-packet does not aggregate.
func (j judgedSide) packets(profile string, sent experiment.Traffic) {
	limit := max(maxPerPacket, 1+slackBursts*float64(sent.BurstSegments)/float64(max(j.Packets, 1)))
	j.AddIf(profile == result.PerPacket && j.AggregationFactor > limit,
		"%s: %.2f frames per packet, profile per-packet wants at most %.2f", j.name, j.AggregationFactor, limit)
}

// side applies the tests that hold for both sides.
func (j judgedSide) side(window time.Duration) {
	j.AddIf(math.Abs(j.Seconds/window.Seconds()-1) > maxWindowError,
		"%s: the window lasted %.2f s instead of %.2f s: the lab was held up", j.name, j.Seconds, window.Seconds())
	for name, ns := range j.ThreadNs {
		j.AddIf(strings.HasPrefix(name, "napi/") && ns == 0,
			"%s: polling thread %s did not run: its work is counted elsewhere",
			j.name, name)
	}
	j.AddIf(j.GeneratorCPU > maxGeneratorCPU, "%s: a traffic thread used %.0f %% of a core, limit %.0f %%", j.name,
		100*j.GeneratorCPU, 100*maxGeneratorCPU)
	j.AddIf(j.Broken > 0, "%s: %s had ended: %s", j.name, words.Counted(j.Broken, "stream"), j.BrokenError)
	j.AddIf(j.DeliveredMbps > maxDelivered*j.OfferedMbps+j.slack,
		"%s: delivered %.1f of %.0f Mbit/s: more than was offered", j.name, j.DeliveredMbps, j.OfferedMbps)
	j.AddIf(j.DeliveredMbps > maxDelivered*j.LinkMbps+j.slack,
		"%s: %.1f Mbit/s arrived, %.1f left the router: the rest waited from before the window", j.name, j.DeliveredMbps,
		j.LinkMbps)
	share, frames := j.Metrics[OfferedShare]
	j.AddIf(frames && share < minOffered, "%s: the generator sent %.1f %% of the frames that were due, limit %.1f %%",
		j.name,
		100*share, 100*minOffered)
}

// probes tests that round-trip probes come through. A device that drops datagrams drops probes like all others.
func (j judgedSide) probes() {
	j.AddIf(float64(j.RTT.Lost) > maxProbesLost*float64(j.RTT.Probes),
		"%s: %d of %d round-trip probes were lost: some clients are cut off", j.name, j.RTT.Lost, j.RTT.Probes)
}

// load tests that a side delivered at least this share of its load. A side that delivered nothing fails in any case,
// also when the tolerance is as large as the load.
func (j judgedSide) load(least float64) {
	j.AddIf(j.DeliveredMbps < least*j.OfferedMbps-j.slack || j.DeliveredMbps == 0,
		"%s: delivered %.1f of %g Mbit/s, limit %.0f %%%s", j.name, j.DeliveredMbps, j.OfferedMbps, 100*least, j.advice)
}

// flow tests that the offered load arrived without retransmissions.
func (j judgedSide) flow(least float64) {
	j.load(least)
	j.AddIf(j.RetransmitRatio > maxRetransmits, "%s: %.2f %% of the segments were sent again, limit %.0f %%%s", j.name,
		100*j.RetransmitRatio, 100*maxRetransmits, j.advice)
}
