package cost

import (
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/result"
)

// judgeAlone judges a trial of an interleaved round, as judge does a trial with two sides. The trial has one side: a
// device, or the round's clean router if clean is true. It cannot compare both sides as judge does. But a device is
// only compared with a clean router that has an accepted trial, which carried the load in full. So a device that
// delivers less is at its limit, and one that loses packets is lossy.
func judgeAlone(t *attempt, under conditions, clean bool) {
	sent, profile, m := under.sent, t.Cell.Text(result.Profile), t.DUT
	slack := under.slack()
	short := m.DeliveredMbps > 0 && m.DeliveredMbps < minDelivered*m.OfferedMbps-slack // delivered less than the load
	t.Flags = nil
	if !clean && short {
		t.Flags = append(t.Flags, result.FlagSaturated)
	}
	if !clean && max(m.RetransmitRatio, m.LossRatio()) > maxRetransmits {
		t.Flags = append(t.Flags, result.FlagLossy)
	}
	rejects, _ := bench.Judge( // none of these rules returns an error
		func(r *bench.Rejects) error {
			side := judgedSide{m, "device", slack, "", r}
			if clean {
				side.name, side.advice = "clean router", slowedAdvice(under.speed)
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
				if !under.aggregates {
					side.packets(profile, sent)
				}
			}
			return nil
		},
		bench.WaitRule(under.precedes, m.Metrics[WaitedForOthers], "router: its threads"),
		bench.Window{WantedShare: under.speed, Share: routerShare(m)}.Speed, bench.RejectFor(under.failedProof...))
	t.Rejects, t.Accepted = rejects, len(rejects) == 0
}
