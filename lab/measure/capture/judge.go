package capture

import (
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
)

// minOffered is the share of the due frames below which a trial says nothing of the device.
const minOffered = 0.98

// judge lists why a trial does not count, empty where it does. Frames that were lost are never a reason: only what the
// lab did, or other programs on its CPUs.
func (o *observation) judge() (bench.Rejects, error) {
	before, after := o.before.stations[0], o.after.stations[0]
	w := bench.Window{
		Seconds: float64(after.MonotonicNs-before.MonotonicNs) / 1e9, Machine: bench.Machine(after.Stat.Sub(before.Stat)),
		CPUs: o.lab.machine, Asked: o.lab.speed, Share: o.share(),
	}
	return bench.Judge(bench.RejectFor(o.faults...), o.offered, w.Steal, w.Speed, o.waited)
}

// offered is the rule that the generator sent what was due, and that all of it reached the splitter.
func (o *observation) offered(r *bench.Rejects) error {
	intended, offered := o.sent.Frames.Intended, o.sent.Datagrams.Sent
	r.AddIf(offered == 0, "the generator sent nothing")
	r.AddIf(float64(offered) < minOffered*float64(intended),
		"the generator sent %d of %d frames that were due, less than %g %%", offered, intended, 100*minOffered)
	if n := o.switched(); n != nil {
		r.AddIf(*n != offered, "the splitter counted %d frames and the generator %d: frames were lost before they were split",
			*n, offered)
	}
	return nil
}

// waited is the rule that no other program had the CPUs of the stations.
func (o *observation) waited(r *bench.Rejects) error {
	w := o.waiting()
	for i, s := range o.lab.stations {
		wait, limit := w.wait(i)
		r.AddIf(wait > limit,
			"%s on %s: polling threads and programs waited %.0f %% of the time for a CPU, limit %.0f %%: another program had it",
			s.dut, s.Host.Name, 100*wait, 100*limit)
		if o.lab.sharesSecond(s) {
			wait, limit = w.second[i], w.secondLimit()
			r.AddIf(w.crowded(i),
				"%s on %s: the programs waited %.0f %% of the time for their second CPU, limit %.0f %%: the generator, which "+
					"shares it, left them too little: offer less, or measure where labs may use three CPUs", s.dut, s.Host.Name,
				100*wait, 100*limit)
		}
	}
	return nil
}

// Limits of waiting for a CPU.
const (
	maxWait    = 0.50 // of the time in which frames were sent
	waitPerCPU = 1.50 // the same, of the CPU time of all that work there: they wait for each other
	filledCPU  = 0.90 // of the CPU: beyond, all wait however long, and no other program need have been there
)

// cpuWaits is what is known of a CPU that stations share, in CPUs.
type cpuWaits struct {
	used    float64   // by all of them, with their other work
	taken   float64   // by what slows the CPU
	hasCPUs []float64 // what each may use
	waits   []float64 // run-queue wait of each
	queues  []float64 // programs of each that wait for the same frames
	second  []float64 // run-queue wait of the programs of each, without polling threads
}

// cpuWaits sums what all stations did on their CPU while frames were sent.
func (o *observation) waiting() (w cpuWaits) {
	w.taken = 1 - o.share()
	for i, s := range o.lab.stations {
		u := bench.UsageOf(o.before.stations[i], o.end.stations[i])
		ns := float64(o.end.stations[i].MonotonicNs - o.before.stations[i].MonotonicNs)
		w.used += float64(u.NAPINs+u.ProcessNs)/ns + o.background(i)
		w.hasCPUs, w.waits, w.queues = append(w.hasCPUs, o.usable(s)), append(w.waits, float64(u.WaitNs)/ns),
			append(w.queues, float64(max(1, len(o.captured[i]))))
		var polling int64
		for name, now := range o.end.stations[i].NAPI {
			polling += now.WaitNs - o.before.stations[i].NAPI[name].WaitNs
		}
		w.second = append(w.second, float64(u.WaitNs-polling)/ns)
	}
	return w
}

// wait is how long a station's threads waited, and how long they may.
func (w cpuWaits) wait(i int) (wait, limit float64) {
	if w.used >= filledCPU*w.hasCPUs[i] {
		return 0, maxWait
	}
	return w.waits[i], max(maxWait, waitPerCPU*w.used*w.queues[i]) + w.taken*w.queues[i]
}

// secondLimit is how long the programs of a station may wait for the second CPU, which those of all stations share.
func (w cpuWaits) secondLimit() float64 {
	limit := maxWait - 1
	for _, n := range w.queues {
		limit += n
	}
	return limit
}

// crowded reports whether the programs of a station waited too long for the second CPU.
func (w cpuWaits) crowded(i int) bool { return w.second[i] > w.secondLimit() }

// crowded reports whether the generator left any station's programs too little of the CPU that it shares with them.
func (o *observation) crowded() bool {
	w := o.waiting()
	for i, s := range o.lab.stations {
		if o.lab.sharesSecond(s) && w.crowded(i) {
			return true
		}
	}
	return false
}

// switched is what came into the splitter; nil without one.
func (o *observation) switched() *int64 {
	if o.lab.splitter == nil {
		return nil
	}
	port := o.lab.splitter.Ifs[0]
	n := o.after.splitter.Links[port].Sub(o.before.splitter.Links[port]).RxPackets
	return &n
}

// share is what slowed stations had of their CPUs.
func (o *observation) share() float64 {
	return bench.RouterShare(bench.Snapshot{Slow: o.before.slow}, bench.Snapshot{Slow: o.after.slow})
}

// usable is how many CPUs a station has, slowed ones less.
func (o *observation) usable(s *station) float64 {
	switch {
	case s.cpus < 2:
		return o.share()
	case o.lab.sharesSecond(s): // which is not slowed
		return o.share() + 1
	}
	return 2 * o.share()
}

// background is how many CPUs the other work of a station had while frames were sent.
func (o *observation) background(i int) (cpus float64) {
	for n, before := range o.before.burned[i] {
		cpus += burn.Share(before, o.end.burned[i][n])
	}
	return cpus
}
