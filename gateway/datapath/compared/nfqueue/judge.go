// What the daemon decides about a packet that the rules queued.

package nfqueue

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/nfqueue/queue"
)

// judge decides about the packets of one queue.
type judge struct {
	*admission.Judge
	table *admission.Table
	queue *queue.Queue // source of the packets
	lan   uint32       // the interface's index
	mtu   int          // the smaller one of both interfaces
	// capture brings unauthenticated clients' HTTP to the portal; nil, as studied: NAT does.
	capture *capture
}

// kernelVerdicts are the kernel's verdicts by admission's verdicts; all others drop.
var kernelVerdicts = [...]queue.Verdict{
	admission.Forward: {Kind: queue.Accept},
	admission.Local:   {Kind: queue.Accept},
	admission.Portal:  {Kind: queue.Repeat, Mark: markPortal},
	admission.Reject:  {Kind: queue.Repeat, Mark: markReject},
}

// decide gives packets their verdicts.
func (j *judge) decide(packets []queue.Packet, verdicts []queue.Verdict) {
	now := admission.Now()
	for i := range packets {
		if v := j.judgePacket(&packets[i], now); v == admission.Unknown {
			verdicts[i] = j.holdForNewcomer(&packets[i])
		} else {
			verdicts[i] = kernelVerdicts[v]
		}
	}
}

// holdForNewcomer holds a newcomer's packet until the gateway has been notified of its sender, and judges it again
// then, so that the connection need not start again.
func (j *judge) holdForNewcomer(p *queue.Packet) queue.Verdict {
	if p.Mark != markMet {
		release := j.queue.Hold(p.ID)
		again := func() { release(queue.Verdict{Kind: queue.Repeat, Mark: markMet}) }
		if j.table.ReportNewcomer(netip.AddrFrom4([4]byte(p.Data[12:16])), j.sender(p), again) {
			return queue.Verdict{Kind: queue.Held}
		}
		release(queue.Verdict{})
		j.Count(admission.NotLeased, 1)
		return queue.Verdict{Kind: queue.Held}
	}
	j.Count(admission.NotLeased, 1)
	return queue.Verdict{}
}

func (j *judge) judgePacket(p *queue.Packet, now int64) admission.Verdict {
	packet := admission.Packet{Bytes: p.Data, Length: p.Length, Checked: true}
	if p.GSO {
		packet.Segments = segments(p, j.mtu)
	}
	if p.In != j.lan {
		v, _ := j.JudgeDown(packet, now)
		return v
	}
	// As studied, a packet from one client to another is queued twice: before it is routed, and on its way back into the
	// LAN.
	if p.Hook == queue.Prerouting && j.capture != nil && !j.Intercepts(j.sender(p), packet, now) {
		return admission.Local // judged after routing: see unrouted
	}
	v := admission.Forward
	if p.Hook != queue.Forward || j.capture != nil {
		v = j.JudgeUp(j.sender(p), packet, now)
	}
	if v == admission.Forward && p.Hook == queue.Forward && p.Out == j.lan {
		v, _ = j.JudgeAcross(packet, now)
	}
	if v == admission.Portal && j.capture != nil {
		if !j.capture.hasRoom(p.Data, now) {
			return admission.Reject
		}
		j.capture.hold(p)
	}
	return v
}

// sender returns the MAC address that a packet of the LAN came from. Segments of an aggregated packet that the kernel
// has split have no Ethernet header, but the rules have checked it before: an unknown MAC has no owner.
func (j *judge) sender(p *queue.Packet) datapath.MAC {
	if mac := datapath.MAC(p.MAC); mac != (datapath.MAC{}) || p.Mark != markKnown || len(p.Data) < 20 {
		return mac
	}
	return j.table.Owner(netip.AddrFrom4([4]byte(p.Data[12:16])))
}

// segments estimates how many packets on the wire an aggregated one stands for, which the kernel does not report: right
// for full-sized packets, too low for shorter ones.
func segments(p *queue.Packet, mtu int) int {
	if len(p.Data) < 20 {
		return 1
	}
	headers := int(p.Data[0]&15) * 4
	switch {
	case p.Data[9] == unix.IPPROTO_UDP:
		headers += 8
	case len(p.Data) >= headers+20:
		headers += int(p.Data[headers+12]>>4) * 4
	}
	payload := mtu - headers
	if payload <= 0 || p.Length <= headers {
		return 1
	}
	return (p.Length - headers + payload - 1) / payload
}
