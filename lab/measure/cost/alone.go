package cost

import (
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/result"
)

// judgeAlone is judge for a trial with one side, which is a clean router or a device. What judge concludes from the
// window of the other side follows from the round: its clean router carries the load in full, or has no accepted
// trial, and then no device is compared with it. So a device that falls short is at its limit, and one whose packets
// are lost is lossy.
func judgeAlone(t *attempt, under conditions, clean bool) {
	sent, profile, m := under.sent, t.Cell.Text(result.Profile), t.DUT
	slack := under.slack()
	short := m.DeliveredMbps > 0 && m.DeliveredMbps < minDelivered*m.OfferedMbps-slack
	t.Flags = nil
	if !clean && short {
		t.Flags = append(t.Flags, result.FlagSaturated)
	}
	if !clean && max(m.RetransmitRatio, m.LossRatio()) > maxRetransmits {
		t.Flags = append(t.Flags, result.FlagLossy)
	}
	rejects, _ := bench.Judge( // none of these rules asks anybody
		func(r *bench.Rejects) error {
			side := judgedSide{m, "device", slack, "", r}
			if clean {
				side.who, side.advice = "clean router", slowedAdvice(under.speed)
			}
			side.side(under.window)
			if clean || !short || m.Datagrams == nil {
				side.probes()
			}
			switch {
			case clean:
				side.control(profile, sent, false)
			case !short:
				side.load(minDelivered)
				if !under.gathers {
					side.packets(profile, sent)
				}
			}
			return nil
		},
		bench.WaitRule(under.precedes, m.Metrics[WaitedForOthers], "router: its threads"),
		bench.Window{Asked: under.speed, Share: routerShare(m)}.Speed, bench.RejectFor(under.unlike...))
	t.Rejects, t.Accepted = rejects, len(rejects) == 0
}
