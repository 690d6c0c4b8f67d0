package bench

import "math"

// noiseModel is what noise may do to the ratio of two routers' CPU.
type noiseModel struct {
	// stolenCores is what one router's work rises by where a neighbour takes all of the machine, cores: waking an idle
	// virtual CPU gets dearer. It is the same for both routers, so it pulls their ratio towards 1.
	stolenCores float64
	// mostStolen is the part of a clean router's work that can be such a rise.
	mostStolen float64
	// lightShift is by how much more a ratio's logarithm moves where a neighbour takes all of the machine and the clean
	// router next to no CPU: of gateway-ebpf's. It ends at lightCores.
	lightShift, lightCores float64
	// othersPull is the part of a ratio's logarithm that changes where other programs have a whole CPU of the routers, and
	// mostPull bounds it: a device whose programs sleep between packets finds its CPU awake.
	othersPull, mostPull float64
}

// fittedNoise is the law of five devices at 100 Mbit/s and 1 Gbit/s (docs/validation.md, "Noise"): about a tenth more
// than the most that was seen, so that what is kept out of the fit is within.
var fittedNoise = noiseModel{
	stolenCores: 0.17, mostStolen: 0.6, lightShift: 1.8, lightCores: 0.1, othersPull: 0.45, mostPull: 0.20}

// Noise is what others had of the machine in a window, or have now: shares from 0 to 1.
type Noise struct {
	Steal  float64 // of the machine's CPUs, other guests of its hypervisor
	Others float64 // of the routers' CPUs, programs that are not of a lab
}

// BeyondQuiet is the share of CPU that others had in a window of so many seconds on a machine with cpus CPUs; 0 where
// that was what quiet machines show as well.
func (n Noise) BeyondQuiet(seconds float64, cpus int) float64 {
	if n.Steal <= max(quietStealPct/100, Ticks(stealTicks, seconds, cpus)) && n.Others <= 0 {
		return 0
	}
	return n.Steal + n.Others
}

// Bias is the most by which noise may have moved the logarithm of the ratio of two routers' CPU time; cores is what the
// clean router used.
func (n Noise) Bias(log, cores float64) float64 { return fittedNoise.bias(n, log, cores) }

// Rise is the most by which noise may have raised the CPU of both routers, cores, and a device's by more, on its
// logarithm; cores is what the clean router used.
func (n Noise) Rise(cores float64) (rise, more float64) {
	return fittedNoise.riseRatio(n, cores), fittedNoise.light(n, cores)
}

func (l noiseModel) riseRatio(n Noise, cores float64) float64 {
	return min(l.stolenCores*n.Steal, l.mostStolen*cores)
}

func (l noiseModel) light(n Noise, cores float64) float64 {
	return l.lightShift * n.Steal * max(0, 1-cores/l.lightCores)
}

func (l noiseModel) bias(n Noise, log, cores float64) float64 {
	moved := 0.0
	if cores > 0 && n.Steal > 0 {
		rise := l.riseRatio(n, cores)
		// ratio = (device + rise) / (clean + rise)
		if without := (math.Exp(log)*cores - rise) / (cores - rise); without > 0 {
			moved = math.Abs(math.Log(without) - log)
		} else { // the device's whole work may be such a rise
			moved = 1 + math.Abs(log)
		}
	}
	moved += l.light(n, cores)
	pull := min(l.othersPull*max(n.Others, 0), l.mostPull)
	return moved + pull/(1-pull)*math.Abs(log)
}
