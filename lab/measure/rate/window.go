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

// trial computes the record of a window from the snapshots at its beginning and end.
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

// pathFault returns the outcome of a faulty path: BlackHole if large packets disappear, Stalled if no payload arrived,
// or "". A link that loses frames on purpose (lossPct) also loses the probes for the largest packet, so there their
// loss proves no black hole.
func pathFault(t *Trial, lossPct float64) string {
	switch {
	case t.PathMTU.BlackHole() && lossPct == 0:
		return BlackHole
	case t.DeliveredBytes == 0:
		return Stalled
	}
	return ""
}

// addTheory adds the share of the link's rate that the tunnel's headers leave for payload.
func (b *block) addTheory(t *Trial) {
	p := fullPacket(b.Bench.DUT, client.KindOf(b.Side.Client).MTU)
	t.TunnelMTU, t.TheoryShare, t.Formula = p.Inner, p.Share(), p.Formula()
	if d, ok := b.Bench.DUT.(dut.Encapsulating); ok {
		t.Headers = d.Encapsulation().String()
	}
}

// fullPacket describes a client's full TCP segment as it leaves the gateway. mtu is that of the client's link. A device
// that is not dut.Encapsulating adds no headers.
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
	perPacket, perSegment := 0, 0 // bytes of headers
	for i, h := range e.Headers {
		if i < e.Inner {
			perSegment += h.Bytes
		} else {
			perPacket += h.Bytes
		}
	}
	p.Outer = math.Round(tunnel.Shared(p.Inner, perPacket, perSegment, dut.OuterLink, p.Link))
	return p
}

// addEnds adds the figures of clients and server: payload, TCP segments and CPU time.
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

// addGateways adds the gateways' CPU time and the counters of the link between them.
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

// linkOf is the difference of a link's counters.
func linkOf(before, after meter.Sample, name string) meter.Link {
	return after.Links[name].Sub(before.Links[name])
}

// Limits of a window.
const (
	fullLink       = 0.97 // share of the link's rate from which on the link counts as full
	fullCPU        = 0.90 // share of the CPUs of the gateways, or of the ends, from which on they count as full
	maxLengthError = 0.10 // largest error of the window's length, as a share of it
)

// limit returns what kept the rate from being higher: ByLink, ByGateway, ByEnds or ByUnknown.
func (b *block) limit(t *Trial) string {
	share := func(ns int64, cpus int) float64 { // CPU time as a share of some CPUs' time
		return float64(ns) / 1e9 / max(t.LinkSeconds, 1e-9) / float64(max(1, cpus))
	}
	switch {
	case t.LinkMbps > 0 && bench.Mbps(t.LinkBytes, t.LinkSeconds) >= fullLink*t.LinkMbps:
		return ByLink
	case share(t.EnterNs+t.LeaveNs, t.GatewayCPUs) >= fullCPU*t.share():
		return ByGateway
	case share(t.EndsNs, len(b.Placement.Endpoints)) >= fullCPU, t.GeneratorCPU >= fullCPU:
		return ByEnds
	}
	return ByUnknown
}

// judge sets the window's limit, and returns why the window does not count. A faulty path is a result; a window does
// not count when the lab is at fault.
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
	proof := bench.RejectFor() // no rule: the device's proof needs load, which a faulty path does not carry
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
