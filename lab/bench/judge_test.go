package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestRules: what each rule that all measures share rejects, and what it accepts.
func TestRules(t *testing.T) {
	steal := func(pct, seconds float64) Rule {
		return Window{When: " during the leases", Seconds: seconds, Machine: result.Machine{Steal: pct}, CPUs: 2}.Steal
	}
	speed := func(asked, share float64) Rule { return Window{WantedShare: asked, Share: share}.Speed }
	for name, c := range map[string]struct {
		rule Rule
		want string // a part of the reason; empty: none
	}{
		"a quiet machine":                 {steal(0.9, 1), ""},
		"another guest":                   {steal(30, 1), "30.0 % steal during the leases, limit 1.0 %"},
		"two ticks of a short window":     {steal(2, 0.5), ""},
		"as slow as asked for":            {speed(0.25, 0.27), ""},
		"faster":                          {speed(0.25, 0.4), "40.0 % of their CPU instead of 25.0 %"},
		"not slowed":                      {speed(0, 0), ""},
		"waited":                          {WaitRule(false, 0.6, "threads"), "threads waited 60 % of the window"},
		"waited, before other programs":   {WaitRule(true, 0.6, "threads"), ""},
		"a reason that applies":           {RejectIf(true, "%d of %d", 1, 2), "1 of 2"},
		"one that does not":               {RejectIf(false, "%d of %d", 1, 2), ""},
		"what was found when it was sent": {RejectFor("lost"), "lost"},
	} {
		r, err := Judge(c.rule)
		if err != nil || (c.want == "") != (len(r) == 0) || len(r) > 0 && !strings.Contains(r[0], c.want) {
			t.Errorf("%s: %q, %v; want %q", name, r, err, c.want)
		}
	}
}

// TestJudge: reasons are in the order of the rules, and an error ends the judging.
func TestJudge(t *testing.T) {
	if r, err := Judge(RejectFor("a", "b"), RejectIf(true, "c")); err != nil || !slices.Equal(r, Rejects{"a", "b", "c"}) {
		t.Errorf("%q, %v", r, err)
	}
	gone := errors.New("gone")
	if r, err := Judge(RejectFor("a"), func(*Rejects) error { return gone }); r != nil || !errors.Is(err, gone) {
		t.Errorf("%q, %v", r, err)
	}
}

// faultyLab is a lab that goes wrong when it is left.
type faultyLab struct {
	err          error
	left, closed bool
}

func (l *faultyLab) Leave(context.Context) error { l.left = true; return l.err }
func (l *faultyLab) Close() error                { l.closed = true; return nil }

// TestEndOfBlocks: an error of leaving labs is noted and costs no trial, unless clients were not kept out. An
// interrupted block does not wait for that. All hosts end in any case.
func TestEndOfBlocks(t *testing.T) {
	wrong, open := errors.New("a stop command failed"), &NotBlocked{"client 1 reached the server"}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	failed := errors.New("window 2")
	for name, c := range map[string]struct {
		ctx                context.Context
		block, leaving     error
		wantErr, wantNoted error
		wantLeft           bool
	}{
		"in order":     {t.Context(), nil, nil, nil, nil, true},
		"noted":        {t.Context(), nil, wrong, nil, wrong, true},
		"nothing new":  {t.Context(), failed, wrong, failed, nil, true},
		"not kept out": {t.Context(), nil, open, open, nil, true},
		"interrupted":  {stopped, failed, wrong, failed, nil, false},
	} {
		a, b := &faultyLab{err: c.leaving}, &faultyLab{}
		var noted error
		err := End(c.ctx, c.block, func(left error) { noted = left }, a, b)
		if !errors.Is(err, c.wantErr) || !errors.Is(noted, c.wantNoted) {
			t.Errorf("%s: %v, noted %v", name, err, noted)
		}
		if a.left != c.wantLeft || b.left != c.wantLeft || !a.closed || !b.closed {
			t.Errorf("%s: %+v and %+v", name, a, b)
		}
	}
}
