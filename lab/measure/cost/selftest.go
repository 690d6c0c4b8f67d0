package cost

import (
	"math"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Limits of the self-tests of a trial. A trial outside them measured something
// else than the router under the stated load; it is rejected with its reason,
// kept in the raw data, and measured again.
const (
	minDelivered    = 0.98 // of the offered load
	minBeside       = 0.90 // of the offered load, clean router beside a device that fills the routers' CPU
	minProfiled     = 0.50 // of the offered load, clean router while perf runs
	maxGeneratorCPU = 0.80 // cores, busiest traffic thread
	maxRetransmits  = 0.01 // of the segments sent; of UDP's datagrams a device loses no more, or is lossy
	minBurst        = 0.80 // of the burst length asked for, clean router
	maxWait         = 0.50 // run-queue wait of the device's threads, of the window
	waitPerCPU      = 1.50 // the same, of the routers' CPU time: several threads wait for one that runs
	filledCPU       = 0.90 // of the CPU that both routers share: their threads wait for each other, however long
	maxPerPacket    = 1.05 // frames per packet in profile per-packet
	minBulk         = 1.50 // frames per packet in profile bulk
	maxWindowError  = 0.10 // length of the window against the one asked for
	maxDelivered    = 1.05 // of the offered load
	maxProbesLost   = 0.20 // of the round-trip probes: some clients are cut off
	slackBursts     = 2    // a window may begin and end between two bursts
)

// judge applies the self-tests to a trial and sets Accepted, Rejects and Flags.
//
// The clean router is the control: where it delivers the same load in full and
// without loss, and the generators have CPU to spare, a device that delivers
// less, or loses and so makes its clients send again, shows what it can do.
// Such a trial stands, flagged.
//
// The size of a burst matters twice: where a window holds few, counting them is
// no exact measure of a rate, and where a congestion window has become shorter
// than a burst, the routers forward other packets than was asked for.
//
// A device that gathers packets itself may do so in profile per-packet: its links do
// not, as the clean router shows, which has the same. One at its limit may lose frames
// ahead of the router's IP layer, which then sees fewer packets than frames as well.
func judge(t *result.Trial, window time.Duration, sent experiment.Traffic, gathers bool, cpus int) {
	var rejects side.Rejects
	t.Flags = nil
	reject := rejects.Add

	// A hiccup of the machine holds both sides up alike and is no limit of the device.
	slack := slackBursts * float64(sent.BurstSegments) * segmentMbit(sent) / window.Seconds()
	saturated := !t.AA && t.DUT.DeliveredMbps > 0 && t.DUT.DeliveredMbps < minDelivered*min(t.DUT.OfferedMbps, t.Clean.DeliveredMbps)-slack
	if saturated {
		t.Flags = append(t.Flags, result.FlagSaturated)
	}
	judgeSide("clean router", t.Clean, window, slack, reject)
	judgeControl(t, sent, saturated, slack, reject)
	judgeSide("device", t.DUT, window, slack, reject)
	if !gathers && !saturated {
		judgePackets("device", t.Cell.Text(result.Profile), t.DUT, reject)
	}
	judgeDevice(t, saturated, slack, reject)
	if lossy := max(t.DUT.RetransmitRatio, t.DUT.LossRatio()) > maxRetransmits; lossy && !t.AA && t.Clean.LossRatio() <= maxRetransmits {
		t.Flags = append(t.Flags, result.FlagLossy)
	}
	worse := t.DUT.Machine
	worse.Steal = max(worse.Steal, t.Clean.Machine.Steal)
	rejects.Steal(worse, window.Seconds(), cpus, "")
	t.Rejects, t.Accepted = rejects, len(rejects) == 0
}

// judgeControl tests what must hold for the clean router, so that it can tell
// anything about the device beside it.
func judgeControl(t *result.Trial, sent experiment.Traffic, saturated bool, slack float64, reject func(string, ...any)) {
	const who = "clean router"
	least := minDelivered
	if saturated {
		least = minBeside
	}
	judgePackets(who, t.Cell.Text(result.Profile), t.Clean, reject)
	judgeFlow(who, t.Clean, least, slack, reject)
	if t.Clean.AggregationFactor < minBulk && t.Cell.Text(result.Profile) == result.Bulk {
		reject("%s: %.2f frames per packet, profile bulk wants %.2f or more", who, t.Clean.AggregationFactor, minBulk)
	}
	known := t.Clean.SegmentsPerBurst > 0
	if want := float64(sent.BurstSegments); traffic.KindOf(sent.Kind).Bursts && known && t.Clean.SegmentsPerBurst < minBurst*want {
		reject("%s: %.1f segments a burst, %.0f were to be sent: its streams have lost too many", who, t.Clean.SegmentsPerBurst, want)
	}
}

// judgeDevice tests that the device got its load, or is at its limit, and that no
// one else had its CPU.
func judgeDevice(t *result.Trial, saturated bool, slack float64, reject func(string, ...any)) {
	switch {
	case saturated:
	case t.AA:
		judgeFlow("device", t.DUT, minDelivered, slack, reject)
	case tooLittle(t.DUT, minDelivered, slack):
		reject("device: delivered %.1f of %g Mbit/s, limit %.0f %%", t.DUT.DeliveredMbps, t.DUT.OfferedMbps, 100*minDelivered)
	}
	used := routersCPU(t)
	if wait, limit := float64(t.DUT.WaitNs)/1e9/t.DUT.Seconds, max(maxWait, waitPerCPU*used); wait > limit && used < filledCPU {
		reject("device: its threads waited %.0f %% of the window for a CPU, limit %.0f %%", 100*wait, 100*limit)
	}
}

// judgePackets tests that profile per-packet is one.
func judgePackets(who, profile string, m result.Measurement, reject func(string, ...any)) {
	if profile == result.PerPacket && m.AggregationFactor > maxPerPacket {
		reject("%s: %.2f frames per packet, profile per-packet wants at most %.2f", who, m.AggregationFactor, maxPerPacket)
	}
}

// segmentMbit is the payload of a full segment.
func segmentMbit(sent experiment.Traffic) float64 {
	return float64(traffic.SegmentBytes(traffic.EthernetMTU, sent.Protocol == experiment.ProtocolUDP)) * 8 / 1e6
}

// routersCPU is the CPU both routers used, in cores: where they fill theirs they
// wait for each other, and no one else need have been there.
func routersCPU(t *result.Trial) float64 {
	return (t.DUT.CPUCorePct() + t.Clean.CPUCorePct()) / 100
}

// judgeSide tests what must hold whatever the device does.
func judgeSide(who string, m result.Measurement, window time.Duration, slack float64, reject func(string, ...any)) {
	if off := math.Abs(m.Seconds/window.Seconds() - 1); off > maxWindowError {
		reject("%s: the window lasted %.2f s instead of %.2f s: the lab was held up", who, m.Seconds, window.Seconds())
	}
	for name, ns := range m.ThreadNs {
		if strings.HasPrefix(name, "napi/") && ns == 0 {
			reject("%s: polling thread %s did not run: its work is billed elsewhere", who, name)
		}
	}
	if m.GeneratorCPU > maxGeneratorCPU {
		reject("%s: a traffic thread used %.0f %% of a core, limit %.0f %%", who, 100*m.GeneratorCPU, 100*maxGeneratorCPU)
	}
	if m.Broken > 0 {
		reject("%s: %d streams had ended: %s", who, m.Broken, m.BrokenError)
	}
	if m.DeliveredMbps > maxDelivered*m.OfferedMbps+slack {
		reject("%s: delivered %.1f of %.0f Mbit/s: more than was offered", who, m.DeliveredMbps, m.OfferedMbps)
	}
	if m.DeliveredMbps > maxDelivered*m.LinkMbps+slack {
		reject("%s: %.1f Mbit/s arrived, %.1f left the router: the rest waited from before the window", who, m.DeliveredMbps, m.LinkMbps)
	}
	if lost := float64(m.RTT.Lost); lost > maxProbesLost*float64(m.RTT.Probes) {
		reject("%s: %d of %d round-trip probes were lost: some clients are cut off", who, m.RTT.Lost, m.RTT.Probes)
	}
}

// tooLittle reports whether a side delivered too little of its load. Nothing is too little
// also where the window is so short, or the load so light, that the slack covers all of it.
func tooLittle(m result.Measurement, least, slack float64) bool {
	return m.DeliveredMbps < least*m.OfferedMbps-slack || m.DeliveredMbps == 0
}

// judgeFlow tests that the offered load arrived, and arrived once.
func judgeFlow(who string, m result.Measurement, least, slack float64, reject func(string, ...any)) {
	if tooLittle(m, least, slack) {
		reject("%s: delivered %.1f of %g Mbit/s, limit %.0f %%", who, m.DeliveredMbps, m.OfferedMbps, 100*least)
	}
	if m.RetransmitRatio > maxRetransmits {
		reject("%s: %.2f %% of the segments were sent again, limit %.0f %%", who, 100*m.RetransmitRatio, 100*maxRetransmits)
	}
}
