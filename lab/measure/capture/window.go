package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// observation has the readings of one window.
type observation struct {
	lab                *lab
	length             time.Duration      // planned length of the load
	before, end, after snapshot           // before the load, at its end, and when all stations were idle again
	sent, got          agent.TrafficStats // of the generator and of the sink
	captured           [][]dut.Captured   // counts of each program, by station
	faults             []string           // of the devices
}

// snapshot has the values of all meters at one moment.
type snapshot struct {
	stations []meter.Sample
	burned   [][]burn.CPUTime // CPU time of each station's background work
	slow     []burn.CPUTime   // CPU time of the program that slows the stations' CPUs; nil if none does
	splitter meter.Sample
}

// read reads all meters at the same time. If a reading fails because a capture interface is gone, the error names it.
func (l *lab) read(ctx context.Context) (r snapshot, err error) {
	r.stations, r.burned = make([]meter.Sample, len(l.stations)), make([][]burn.CPUTime, len(l.stations))
	var reads []func() error
	for i, s := range l.stations {
		reads = append(reads, func() (err error) { r.stations[i], err = s.Sample(ctx); return err })
		if s.burns {
			reads = append(reads, func() (err error) { r.burned[i], err = s.ReadSlow(ctx); return err })
		}
	}
	if l.splitter != nil {
		reads = append(reads, func() (err error) { r.splitter, err = l.splitter.Sample(ctx); return err })
	}
	if l.slowed != nil {
		reads = append(reads, func() (err error) { r.slow, err = l.slowed.ReadSlow(ctx); return err })
	}
	if err := backend.Together(reads...); err != nil {
		return r, fmt.Errorf(
			"reading the meters of lab %s: %w", l.Name, cmp.Or(l.each(func(s *station) error { return s.checkPort(ctx) }), err))
	}
	return r, nil
}

// checkPort returns an error if the capture interface is gone: meters then miss its polling thread. It returns nil if
// it cannot tell.
func (s *station) checkPort(ctx context.Context) error {
	all, err := s.LinkAddresses(ctx)
	if _, found := all[s.port]; err != nil || found {
		return nil // the meters' own error says more
	}
	return fmt.Errorf("the interface %s of %s is gone", s.port, s.Host.Name)
}

// observe starts the devices, sends a load, waits until the stations are idle, and ends the devices. A fault of a
// device is among the observation's faults: the trial is then rejected. An error ends the block, because the lab no
// longer works.
func (l *lab) observe(ctx context.Context, load agent.Traffic, length time.Duration) (o *observation, err error) {
	o = &observation{lab: l, length: length, captured: make([][]dut.Captured, len(l.stations))}
	if err := l.begin(ctx); err != nil {
		return nil, bench.CauseOf(err, l.Lab)
	}
	if o.before, err = l.read(ctx); err == nil {
		err = errors.Join(o.send(ctx, load), l.endTraffic(ctx))
	}
	if err == nil {
		err = o.prove(ctx)
	}
	if err == nil {
		err = o.finish(ctx)
	}
	if err != nil {
		return nil, bench.CauseOf(err, l.Lab)
	}
	return o, nil
}

// begin starts the devices of all stations, and then opens their meters.
func (l *lab) begin(ctx context.Context) error {
	return l.each(func(s *station) error {
		if err := s.device.Start(ctx, s.env); err != nil {
			return fmt.Errorf("starting %s on %s: %w", s.dut, s.Host.Name, err)
		}
		m := agent.Meter{IfNames: s.Ifs, Counted: s.device.Traits().Processes, Follow: true}
		if err := s.OpenMeter(ctx, m); err != nil {
			return fmt.Errorf("opening the meter of %s: %w", s.Host.Name, err)
		}
		return nil
	})
}

// send sends the load. It reads the meters when the load ends and when the stations are idle.
func (o *observation) send(ctx context.Context, load agent.Traffic) (err error) {
	if o.lab.sink != nil {
		sinkLoad, f := load, *load.Frames
		f.Link, f.Streams = o.lab.sink.Ifs[0], nil
		sinkLoad.Frames = &f
		if err := o.lab.sink.ServeTraffic(ctx, sinkLoad); err != nil {
			return fmt.Errorf("counting frames at the sink: %w", err)
		}
	}
	if err := o.lab.generator.StartTraffic(ctx, load); err != nil {
		return fmt.Errorf("starting the generator: %w", err)
	}
	if err := bench.Sleep(ctx, o.length); err != nil {
		return err
	}
	if err := o.awaitOver(ctx, load.Frames.Length); err != nil {
		return err
	}
	if o.end, err = o.lab.read(ctx); err != nil {
		return err
	}
	return o.awaitIdle(ctx)
}

// endTraffic stops the generator and the sink, also when ctx has ended. It takes at most 10 s.
func (l *lab) endTraffic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := l.generator.StopTraffic(ctx)
	if l.sink != nil {
		err = errors.Join(err, l.sink.StopTraffic(ctx))
	}
	return err
}

// Waiting for the generator.
const (
	pollEvery         = 5 * time.Millisecond // between two requests for the generator's statistics
	generatorPatience = 10 * time.Second     // for a generator that still sends after its limit
)

// awaitOver waits until the generator has ended. It returns an error if the generator failed, or if it still sends
// generatorPatience after limit.
func (o *observation) awaitOver(ctx context.Context, limit time.Duration) (err error) {
	for end := time.Now().Add(limit - o.length + generatorPatience); ; {
		if o.sent, err = o.lab.generator.TrafficStats(ctx); err != nil {
			return err
		}
		switch {
		case o.sent.Broken > 0:
			return fmt.Errorf("the generator ended early: %s", o.sent.FirstError)
		case o.sent.Frames.Done:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the generator still sends %s after its end", generatorPatience)
		}
		if err := bench.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// Waiting for the last frame and for the programs.
const (
	// A trial is over when no frame has arrived for quietTime. If frames are missing, they may be lost or wait for a busy
	// CPU. The trial is then over when no frame has arrived for missingPatience.
	quietTime       = 100 * time.Millisecond
	missingPatience = time.Second
	// idleNs is the CPU time that idle programs may take of quietTime.
	idleNs = int64(2 * time.Millisecond)
	// arriveMost is the longest wait for the last frame. workMost is the longest wait for programs to be idle.
	arriveMost, workMost = 10 * time.Second, 30 * time.Second
)

// awaitIdle waits until no frame arrives any more and the programs have handled all frames: all programs sleep, their
// sockets' queues are empty, and programs that can report it have reported it. It returns an error if frames still
// arrive arriveMost after the load's end.
func (o *observation) awaitIdle(ctx context.Context) (err error) {
	start, last := time.Now(), o.end
	lastArrival := start
	var received int64 = -1
	for {
		if err := bench.Sleep(ctx, quietTime); err != nil {
			return err
		}
		idle, err := o.lab.idlePrograms(ctx) // before the snapshot, which then has all their work
		if err != nil {
			return err
		}
		if o.after, err = o.lab.read(ctx); err != nil {
			return err
		}
		if o.lab.sink != nil {
			if o.got, err = o.lab.sink.TrafficStats(ctx); err != nil {
				return err
			}
		}
		arrives := o.after.frames(o.lab) != last.frames(o.lab) || o.got.Datagrams.Received != received
		if arrives {
			lastArrival = time.Now()
		}
		switch since := time.Since(start); {
		case arrives && since > arriveMost:
			return fmt.Errorf("frames still arrived %s after the load's end", arriveMost)
		case arrives || !o.complete() && time.Since(lastArrival) < missingPatience:
		case idle && o.after.worked(last) <= idleNs || since > workMost:
			return o.awaitAllRead(ctx)
		}
		last, received = o.after, o.got.Datagrams.Received
	}
}

// idlePrograms reports whether all programs of all stations sleep with empty socket queues: see meter.Rest.
func (l *lab) idlePrograms(ctx context.Context) (bool, error) {
	busy := make([]bool, len(l.stations))
	err := backend.Each(l.stations, func(i int, s *station) error {
		r, err := s.Rest(ctx)
		busy[i] = r.Awake > 0 || r.QueuedBytes > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("asking whether programs have something to do in lab %s: %w", l.Name, err)
	}
	return !slices.Contains(busy, true), nil
}

// awaitAllRead waits until the programs report that they have read all frames, and reads the meters again. Some
// programs sleep while the kernel still keeps frames in a block that is not full.
func (o *observation) awaitAllRead(ctx context.Context) (err error) {
	_ = o.lab.each(func(s *station) error { s.device.Drain(ctx, s.env); return nil })
	o.after, err = o.lab.read(ctx)
	return err
}

// complete reports whether all frames that the generator's link took have passed all stations and reached the sink.
func (o *observation) complete() bool {
	n := o.sent.Datagrams.Sent - o.sent.Frames.Refused
	for i, s := range o.lab.stations {
		if s.passed(o.after.stations[i])-s.passed(o.before.stations[i]) != n {
			return false
		}
	}
	return o.lab.sink == nil || o.got.Datagrams.Received == n
}

// frames returns the number of frames that have passed the capture interfaces of all stations.
func (r snapshot) frames(l *lab) (n int64) {
	for i, s := range l.stations {
		n += s.passed(r.stations[i])
	}
	return n
}

// passed returns the number of frames that have passed the station's capture interface.
func (s *station) passed(m meter.Sample) int64 {
	if s.sends {
		return m.Links[s.port].TxPackets
	}
	return m.Links[s.port].RxPackets
}

// worked returns the CPU time that programs used since an earlier snapshot, ns: that of the station with the most.
func (r snapshot) worked(since snapshot) (ns int64) {
	for i := range r.stations {
		ns = max(ns, bench.UsageOf(since.stations[i], r.stations[i]).ProcessNs)
	}
	return ns
}

// prove has the running devices prove that they captured as configured. A failed proof becomes a fault.
func (o *observation) prove(ctx context.Context) error {
	for _, s := range o.lab.stations {
		text, err := bench.FailedProof(ctx, s.device, s.env)
		if err != nil {
			return err
		}
		if text != "" {
			o.faults = append(o.faults, fmt.Sprintf("%s on %s: %s", s.dut, s.Host.Name, text))
		}
	}
	return nil
}

// finish ends the devices and collects their counts. A device that fails becomes a fault, which rejects the trial
// alone.
func (o *observation) finish(ctx context.Context) error {
	faults := make([]string, len(o.lab.stations))
	err := backend.Each(o.lab.stations, func(i int, s *station) error {
		ended, err := s.ended(ctx)
		if err != nil {
			return err
		}
		o.captured[i], err = s.device.Finish(ctx, s.env)
		if err != nil {
			ended = append(ended, err.Error())
			err = s.device.Stop(ctx, s.env)
		}
		if len(ended) > 0 {
			faults[i] = fmt.Sprintf("%s on %s: %s", s.dut, s.Host.Name, ended[0])
		}
		return err
	})
	o.faults = append(o.faults, slices.DeleteFunc(faults, func(text string) bool { return text == "" })...)
	return err
}

// ended lists the station's programs that ended by themselves, each with its exit status and output.
func (s *station) ended(ctx context.Context) (list []string, err error) {
	programs, err := s.Programs(ctx)
	for _, p := range programs {
		if p.Ended {
			list = append(list,
				fmt.Sprintf("%s ended by itself: %s: %s", p.Name, p.Status, cmp.Or(p.Output, "it printed nothing")))
		}
	}
	return list, err
}
