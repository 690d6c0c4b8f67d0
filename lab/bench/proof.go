package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
)

// FailedProof asks a dut.Proven what it is while it carries load, and returns a reason for rejecting what was measured
// meanwhile; "" is none. Every measure asks.
func FailedProof(ctx context.Context, d dut.DUT, env dut.Env) (string, error) {
	p, ok := d.(dut.Proven)
	if !ok {
		return "", nil
	}
	text, err := p.Unlike(ctx, env)
	if err != nil {
		return "", fmt.Errorf("asking whether the router is what the device is to be: %w", err)
	}
	if text == "" {
		return "", nil
	}
	return "device: " + text, nil
}

// Prove adds what Unlike finds of the lab's device, once.
func (r *Rejects) Prove(ctx context.Context, s *Bench) error {
	text, err := FailedProof(ctx, s.DUT, s.Env)
	r.AddIf(text != "" && !slices.Contains(*r, text), "%s", text)
	return err
}

// Proof is the rule that the lab's device is what it is to be. It asks while the lab carries load.
func (s *Bench) Proof(ctx context.Context) Rule {
	return func(r *Rejects) error { return r.Prove(ctx, s) }
}

// A device that has just been given load may take so long until it is what it is to be: connections enter a flowtable
// with their third packets.
const (
	proofPatience = 3 * time.Second
	proofInterval = 100 * time.Millisecond
)

// ProveSoon is Prove where load has just begun: it asks until it finds nothing, or for some seconds.
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
