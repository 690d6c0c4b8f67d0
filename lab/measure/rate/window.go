package rate

import (
	"context"
	"math"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/tunnel"
	"github.com/gateweigh/gateweigh/lab/words"
)

// trial turns two snapshots into the record of a window.
func (b *block) trial(cell result.Cell, before, after bench.Snapshot) *Trial {
	t := &Trial{
		Cell: cell, SetupSeconds: b.Setup.Seconds(), PathMTU: b.mtu, IdleRTT: b.idle, RTT: result.RTT(after.RTT),
		LinkMbps: cell.Number(result.LinkMbps), GatewayCPUs: len(b.Placement.Router),
	}
	b.addTheory(t)
	up := cell.Text(result.Direction) == result.Up
	b.addEnds(t, up, before, after)
	b.addGateways(t, up, before, after)
	t.Outcome = pathFault(t, b.Experiment.Link.LossPct)
	return t
}

// pathFault is what is wrong with the path, "" for nothing. A link that loses frames on purpose loses those that look
// for the largest packet as well, so that nothing follows from the ones that do not come back.
func pathFault(t *Trial, lossPct float64) string {
	switch {
	case t.PathMTU.BlackHole() && lossPct == 0:
		return BlackHole
	case t.DeliveredBytes == 0:
		return Stalled
	}
	return ""
}

// addTheory adds what the device's own headers leave of the link.
func (b *block) addTheory(t *Trial) {
	p := fullPacket(b.Bench.DUT, client.KindOf(b.Has.Client).MTU)
	t.TunnelMTU, t.TheoryShare, t.Formula = p.Inner, p.Share(), p.Formula()
	if d, ok := b.Bench.DUT.(dut.Encapsulating); ok {
		t.Headers = d.Encapsulation().String()
	}
}

// fullPacket is a full TCP segment of a client whose own link has an MTU, as it leaves the gateway. A device that says
// nothing of its headers has none.
func fullPacket(d dut.DUT, mtu int) tunnel.Packet {
	p := tunnel.Packet{Inner: mtu, Outer: float64(mtu), Options: tunnel.TimeStamps, Link: tunnel.LinkHeader}
	wraps, ok := d.(dut.Encapsulating)
	if !ok {
		return p
	}
	e := wraps.Encapsulation()
	p.Inner = min(mtu, wraps.MTU())
	p.Outer = float64(e.Outer(p.Inner, wraps.MTU()))
	if !e.Stream {
		return p
	}
	own, head := 0, 0
	for i, h := range e.Headers {
		if i < e.Inner {
			head += h.Bytes
		} else {
			own += h.Bytes
		}
	}
	p.Outer = math.Round(tunnel.Shared(p.Inner, own, head, dut.OuterLink, p.Link))
	return p
}

// addEnds adds what clients and server say.
func (b *block) addEnds(t *Trial, up bool, before, after bench.Snapshot) {
	senders, receivers := [2][]bench.Endpoint{before.Clients, after.Clients},
		[2][]bench.Endpoint{{before.Server}, {after.Server}}
	if !up {
		senders, receivers = receivers, senders
	}
	for i, now := range receivers[1] {
		earlier := receivers[0][i].Load
		t.DeliveredBytes += now.Load.ReceivedBytes - earlier.ReceivedBytes
		t.LoadSeconds = max(t.LoadSeconds, float64(now.Load.MonotonicNs-earlier.MonotonicNs)/1e9)
	}
	for i, now := range senders[1] {
		sent := now.Meter.SNMP.Sub(senders[0][i].Meter.SNMP)
		t.Segments, t.Retransmits = t.Segments+sent.TCPOutSegs, t.Retransmits+sent.TCPRetrans
	}
	roles := bench.Roles(before, after)
	t.EndsNs = roles[result.RoleClient] + roles[result.RoleServer]
	t.GeneratorCPU = float64(bench.Busiest(before, after)) / 1e9 / max(t.LoadSeconds, 1e-9)
}

// addGateways adds what both gateways spent, and what left for the link between them.
func (b *block) addGateways(t *Trial, up bool, before, after bench.Snapshot) {
	enter, leave, port := 0, 1, topology.PortOuter1
	if !up {
		enter, leave, port = 1, 0, topology.PortOuter2
	}
	used := bench.UsageOfEach(before.Routers, after.Routers)
	t.EnterNs, t.LeaveNs = used[enter].NAPINs+used[enter].ProcessNs, used[leave].NAPINs+used[leave].ProcessNs
	all := bench.UsageOf(before.Router, after.Router)
	t.WaitNs, t.ThreadNs = all.WaitNs, all.ThreadNs
	t.LinkSeconds = float64(after.Routers[enter].MonotonicNs-before.Routers[enter].MonotonicNs) / 1e9
	out := linkOf(before.Routers[enter], after.Routers[enter], b.Lab.Port(port))
	t.LinkBytes, t.LinkPackets, t.WireBytes = out.TxBytes, out.TxPackets, frames.WireOverhead
	for name := range after.Router.Links {
		l := linkOf(before.Router, after.Router, name)
		t.Dropped += l.RxDropped + l.TxDropped
	}
	ip := after.Router.SNMP.Sub(before.Router.SNMP)
	t.FragCreates, t.ReasmReqds, t.ReasmFails, t.FragFails = ip.FragCreates, ip.ReasmReqds, ip.ReasmFails, ip.FragFails
}

func linkOf(before, after meter.Sample, name string) meter.Link {
	return after.Links[name].Sub(before.Links[name])
}

// Limits of a window, as shares of what there is.
const (
	fullLink       = 0.97 // of the link's rate
	fullCPU        = 0.90 // of the CPUs that the gateways, or the ends, have
	maxLengthError = 0.10 // of the window's length, which it may be off
)

// limit says what kept the rate from being higher.
func (b *block) limit(t *Trial) string {
	cpus := func(ns int64, of int) float64 {
		return float64(ns) / 1e9 / max(t.LinkSeconds, 1e-9) / float64(max(1, of))
	}
	switch {
	case t.LinkMbps > 0 && bench.Mbps(t.LinkBytes, t.LinkSeconds) >= fullLink*t.LinkMbps:
		return ByLink
	case cpus(t.EnterNs+t.LeaveNs, t.GatewayCPUs) >= fullCPU*t.share():
		return ByGateway
	case cpus(t.EndsNs, len(b.Placement.Endpoints)) >= fullCPU, t.GeneratorCPU >= fullCPU:
		return ByEnds
	}
	return ByUnknown
}

// judge says what limited a window, and why it does not count, if it does not: the lab failed, and not the path.
func (b *block) judge(ctx context.Context, t *Trial, before, after bench.Snapshot) (bench.Rejects, error) {
	w, window := b.Window(before, after, ""), b.Experiment.Window.Seconds()
	t.Machine, t.RouterShare = w.Machine, w.Share
	t.WaitedForOthers = b.WaitedForOthers(before, after, t.WaitNs, t.EnterNs+t.LeaveNs)
	broken, first := 0, ""
	for _, e := range append(after.Clients, after.Server) {
		if e.Load.Broken > broken {
			broken, first = e.Load.Broken, e.Load.FirstError
		}
	}
	proof := bench.RejectFor() // through a path that is wrong goes nothing that would prove anything
	if t.Outcome == "" {
		t.LimitedBy = b.limit(t)
		proof = b.Proof(ctx)
	}
	return b.Judge(ctx,
		bench.RejectIf(math.Abs(t.LoadSeconds/window-1) > maxLengthError,
			"the window lasted %.2f s instead of %.2f s: the lab was held up", t.LoadSeconds, window),
		bench.RejectIf(broken > 0, "%s had ended: %s", words.Counted(broken, "stream"), first),
		bench.WaitRule(b.Precedes, t.WaitedForOthers, "the gateways' threads"), proof, w.Speed, w.Steal)
}
