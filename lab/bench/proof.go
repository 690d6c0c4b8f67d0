package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
)

// FailedProof returns why a device's proof fails while it carries load (see dut.Provable), as a reason for rejecting
// what was measured meanwhile. It is "" when the proof holds, and for devices without one. Every measure must call it,
// mostly by Rejects.Prove.
func FailedProof(ctx context.Context, d dut.DUT, env dut.Env) (string, error) {
	p, ok := d.(dut.Provable)
	if !ok {
		return "", nil
	}
	text, err := p.FailedProof(ctx, env)
	if err != nil {
		return "", fmt.Errorf("checking that the router is what the device is to be: %w", err)
	}
	if text == "" {
		return "", nil
	}
	return "device: " + text, nil
}

// Prove adds the FailedProof of the lab's device, unless r already has the same text.
func (r *Rejects) Prove(ctx context.Context, s *Bench) error {
	text, err := FailedProof(ctx, s.DUT, s.Env)
	r.AddIf(text != "" && !slices.Contains(*r, text), "%s", text)
	return err
}

// Proof is the rule that the proof of the lab's device holds. Judge must apply it while the lab carries load.
func (s *Bench) Proof(ctx context.Context) Rule {
	return func(r *Rejects) error { return r.Prove(ctx, s) }
}

// A proof may fail for a moment when load begins: connections, for instance, enter a flowtable with their third
// packets. ProveSoon repeats it for so long, and so often.
const (
	proofPatience = 3 * time.Second
	proofInterval = 100 * time.Millisecond
)

// ProveSoon is Prove for load that has just begun: it repeats the proof until it holds, for at most proofPatience.
func (r *Rejects) ProveSoon(ctx context.Context, s *Bench) error {
	for start := time.Now(); ; {
		var now Rejects
		err := now.Prove(ctx, s)
		if err != nil || len(now) == 0 || time.Since(start) > proofPatience {
			*r = append(*r, now...)
			return err
		}
		if err := Sleep(ctx, proofInterval); err != nil {
			return err
		}
	}
}
