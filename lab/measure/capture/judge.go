package capture

import (
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
)

// minOffered is the least share of the due frames that the generator must have sent. A trial with less is rejected.
const minOffered = 0.98

// judge lists the reasons to reject a trial; an empty list accepts it. The reasons are faults of the lab or of a
// device, and other programs on the lab's CPUs. Lost frames are a result, and never a reason.
func (o *observation) judge() (bench.Rejects, error) {
	before, after := o.before.stations[0], o.after.stations[0]
	w := bench.Window{
		Seconds: float64(after.MonotonicNs-before.MonotonicNs) / 1e9, Machine: bench.Machine(after.Stat.Sub(before.Stat)),
		CPUs: o.lab.machine, WantedShare: o.lab.speed, Share: o.share(),
	}
	return bench.Judge(bench.RejectFor(o.faults...), o.offered, w.Steal, w.Speed, o.waited)
}

// offered rejects a trial if the generator sent less than minOffered of the due frames, or if not all sent frames
// reached the splitter.
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

// waited rejects a trial if the stations' threads waited so long for a CPU that another program must have had it.
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

// Limits of the stations' run-queue wait.
const (
	// maxWait is the limit as a share of the time in which frames were sent.
	maxWait = 0.50
	// waitPerCPU is the limit as a multiple of the CPU time that all stations used: their threads wait for each other.
	waitPerCPU = 1.50
	// filledCPU is the share of the CPU in use above which there is no limit: on a full CPU, threads wait without any
	// other program.
	filledCPU = 0.90
)

// cpuWaits are the use of a CPU that stations share, and the waiting for it. All values are time on or for the CPU as a
// share of the time in which frames were sent (1 is one CPU). The slices have one value a station.
type cpuWaits struct {
	used    float64   // by all stations, their background work included
	taken   float64   // by the program that slows the CPU
	hasCPUs []float64 // CPUs that the station may use
	waits   []float64 // run-queue wait of the station's threads
	queues  []float64 // number of the station's programs, which all wait for the same frames; at least 1
	second  []float64 // run-queue wait of the station's programs, without polling threads
}

// waiting sums the CPU time and waits of all stations while frames were sent.
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

// wait returns how long the threads of station i waited, and their limit. On a full CPU the wait is 0.
func (w cpuWaits) wait(i int) (wait, limit float64) {
	if w.used >= filledCPU*w.hasCPUs[i] {
		return 0, maxWait
	}
	return w.waits[i], max(maxWait, waitPerCPU*w.used*w.queues[i]) + w.taken*w.queues[i]
}

// secondLimit returns how long the programs of a station may wait for the second CPU, which the programs of all
// stations share. Each program may wait while all others run: the limit is the number of all programs less one, plus
// maxWait.
func (w cpuWaits) secondLimit() float64 {
	limit := maxWait - 1
	for _, n := range w.queues {
		limit += n
	}
	return limit
}

// crowded reports whether the programs of station i waited too long for the second CPU.
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

// switched returns the number of frames that came into the splitter; nil in a lab without a splitter.
func (o *observation) switched() *int64 {
	if o.lab.splitter == nil {
		return nil
	}
	port := o.lab.splitter.Ifs[0]
	n := o.after.splitter.Links[port].Sub(o.before.splitter.Links[port]).RxPackets
	return &n
}

// share returns the share of their CPUs' time that slowed stations had; 1 if they are not slowed.
func (o *observation) share() float64 {
	return bench.RouterShare(bench.Snapshot{Slow: o.before.slow}, bench.Snapshot{Slow: o.after.slow})
}

// usable returns the number of CPUs that a station may use. A slowed CPU counts as the share that is left of it.
func (o *observation) usable(s *station) float64 {
	switch {
	case s.cpus < 2:
		return o.share()
	case o.lab.sharesSecond(s): // the generator's CPU is not slowed
		return o.share() + 1
	}
	return 2 * o.share()
}

// background returns the number of CPUs that the background work of station i used while frames were sent.
func (o *observation) background(i int) (cpus float64) {
	for n, before := range o.before.burned[i] {
		cpus += burn.Share(before, o.end.burned[i][n])
	}
	return cpus
}
