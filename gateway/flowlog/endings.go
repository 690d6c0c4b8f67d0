package flowlog

import (
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// endedFlow is a flow that has ended, but whose packets that bypassed connection tracking are not added yet.
type endedFlow struct {
	flow    Flow
	tracked datapath.Tracked
	unknown bool // its start was not recorded
}

// maxEndings bounds the ended flows that wait for their bypassing packets.
const maxEndings = 50_000

// adoptConnections records the start of all existing connections, and has the data path forget the counts of others. It
// first lists the connections and then handles the reports that have come meanwhile: a connection in neither had ended
// before.
func (l *Log) adoptConnections() error {
	var present []datapath.Tracked
	name := func(conn conntrack.Connection) { present = append(present, trackedOf(conn)) }
	err := conntrack.List(func(conn conntrack.Connection) { name(conn); l.recordListed(conn) })
	if err != nil || l.cfg.Bypassed == nil {
		return err
	}
	if err := l.events.Reported(
		l.recordStart, func(conn conntrack.Connection) { name(conn); l.recordEnd(conn) }, l.findMissed); err != nil {
		return err
	}
	return l.cfg.Bypassed.Keep(present)
}

// deferEnd keeps the end of a flow until the next flush adds the packets that bypassed connection tracking, some of
// which may not be counted yet.
func (l *Log) deferEnd(ended endedFlow) {
	l.mu.Lock()
	l.ending = append(l.ending, ended)
	n := len(l.ending)
	l.mu.Unlock()
	if n >= maxEndings {
		l.addBypassed()
	}
}

// addBypassed adds the bypassing packets to the flows that have ended, and adds their lines.
func (l *Log) addBypassed() {
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
	for i, ended := range all {
		flow, t := ended.flow, uncounted[i]
		flow.UpBytes, flow.UpPkts = flow.UpBytes+t.UpBytes, flow.UpPkts+t.UpPackets
		flow.DownBytes, flow.DownPkts = flow.DownBytes+t.DownBytes, flow.DownPkts+t.DownPackets
		l.add(flow, ended.unknown, true)
	}
}
