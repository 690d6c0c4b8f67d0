package flowlog

import (
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// endedFlow is a flow that has ended. Its line is written once the packets that bypassed connection tracking are added.
type endedFlow struct {
	flow    Flow
	tracked datapath.Tracked
	unknown bool // before it ended
}

// mostEnding bounds the flows that wait for what was counted aside.
const mostEnding = 50_000

// inherit begins with the connections that exist, and has the data path keep only their counts. Ends are reported by
// now: a connection that is not listed, and whose end is not reported, had ended before.
func (l *Log) inherit() error {
	var present []datapath.Tracked
	name := func(c conntrack.Connection) { present = append(present, named(c)) }
	err := conntrack.List(func(c conntrack.Connection) { name(c); l.listed(c) })
	if err != nil || l.cfg.Bypassed == nil {
		return err
	}
	if err := l.events.Reported(
		l.recordStart, func(c conntrack.Connection) { name(c); l.finished(c) }, l.findMissed); err != nil {
		return err
	}
	return l.cfg.Bypassed.Keep(present)
}

// await has the end of a flow written at the next flush, with the packets that bypassed connection tracking: some may
// still be on their way.
func (l *Log) await(e endedFlow) {
	l.mu.Lock()
	l.ending = append(l.ending, e)
	n := len(l.ending)
	l.mu.Unlock()
	if n >= mostEnding {
		l.complete()
	}
}

// complete adds the bypassing packets to flows that have ended, and has their lines written.
func (l *Log) complete() {
	l.mu.Lock()
	all := l.ending
	l.ending = nil
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	names := make([]datapath.Tracked, len(all))
	for i := range all {
		names[i] = all[i].tracked
	}
	uncounted, err := l.cfg.Bypassed.Take(names)
	if err != nil {
		l.cfg.Log.Error("counting the flow log's connections: bytes of some that have ended may be missing", "connections",
			len(all), "err", err)
	}
	for i, e := range all {
		f, t := e.flow, uncounted[i]
		f.UpBytes, f.UpPkts = f.UpBytes+t.UpBytes, f.UpPkts+t.UpPackets
		f.DownBytes, f.DownPkts = f.DownBytes+t.DownBytes, f.DownPkts+t.DownPackets
		l.add(f, e.unknown, true)
	}
}
