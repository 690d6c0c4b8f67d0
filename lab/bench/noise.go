package bench

import "math"

// noiseModel bounds the effect of noise on the ratio of two routers' CPU time. Noise is CPU time taken by other virtual
// machines of the same host (steal) or by other programs of the machine (others).
type noiseModel struct {
	// stolenCores is the number of cores by which one router's CPU time rises at 100 % steal: waking an idle virtual CPU
	// costs more then. The rise is the same for both routers, so it pulls their ratio towards 1.
	stolenCores float64
	// mostStolen bounds that rise, as a part of the clean router's CPU time.
	mostStolen float64
	// lightShift is how much further the ratio's logarithm moves at 100 % steal when the clean router uses next to no
	// CPU; this was measured with gateway-ebpf. The effect falls to 0 where the clean router uses lightCores.
	lightShift, lightCores float64
	// othersPull is the part by which the ratio's logarithm changes when other programs use one whole CPU of the
	// routers: a device whose programs sleep between packets then finds its CPU awake. mostPull bounds it.
	othersPull, mostPull float64
}

// fittedNoise was fitted to five devices at 100 Mbit/s and 1 Gbit/s (docs/validation.md, "Noise"). It is about a tenth
// larger than the largest effect that was measured, so that it also bounds the measurements that were not used for the
// fit.
var fittedNoise = noiseModel{
	stolenCores: 0.17, mostStolen: 0.6, lightShift: 1.8, lightCores: 0.1, othersPull: 0.45, mostPull: 0.20}

// Noise is the CPU time that others took from the machine in a window, as shares from 0 to 1.
type Noise struct {
	Steal  float64 // of the machine's CPUs, taken by other virtual machines of its host
	Others float64 // of the routers' CPUs, taken by programs that are not the lab's
}

// BeyondQuiet is the sum of both shares in a window of so many seconds on a machine with cpus CPUs. It is 0 when a
// quiet machine shows as much, because of the resolution of its counters.
func (n Noise) BeyondQuiet(seconds float64, cpus int) float64 {
	if n.Steal <= max(quietStealPct/100, Ticks(stealTicks, seconds, cpus)) && n.Others <= 0 {
		return 0
	}
	return n.Steal + n.Others
}

// Bias returns the largest amount by which noise may have moved the logarithm of the ratio of two routers' CPU time.
// log is the measured logarithm, cores the clean router's CPU time in cores.
func (n Noise) Bias(log, cores float64) float64 { return fittedNoise.bias(n, log, cores) }

// Rise returns the largest amounts by which noise may have raised the CPU time of both routers alike (rise, in cores)
// and, beyond that, the logarithm of the device's CPU time (more). cores is the clean router's CPU time in cores.
func (n Noise) Rise(cores float64) (rise, more float64) {
	return fittedNoise.rise(n, cores), fittedNoise.light(n, cores)
}

// rise is the rise of each router's CPU time because of steal, in cores.
func (m noiseModel) rise(n Noise, cores float64) float64 {
	return min(m.stolenCores*n.Steal, m.mostStolen*cores)
}

// light is the additional shift of the ratio's logarithm for a clean router that uses little CPU.
func (m noiseModel) light(n Noise, cores float64) float64 {
	return m.lightShift * n.Steal * max(0, 1-cores/m.lightCores)
}

// bias is Noise.Bias with the model's constants.
func (m noiseModel) bias(n Noise, log, cores float64) float64 {
	moved := 0.0
	if cores > 0 && n.Steal > 0 {
		rise := m.rise(n, cores)
		// ratio = (device + rise) / (clean + rise)
		if without := (math.Exp(log)*cores - rise) / (cores - rise); without > 0 {
			moved = math.Abs(math.Log(without) - log)
		} else { // the rise may be all of the device's CPU time
			moved = 1 + math.Abs(log)
		}
	}
	moved += m.light(n, cores)
	pull := min(m.othersPull*max(n.Others, 0), m.mostPull)
	return moved + pull/(1-pull)*math.Abs(log)
}
