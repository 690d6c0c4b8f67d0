package runner

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Outlook is what a look at a machine says of a run on it.
type Outlook struct {
	LeastSteal, MostSteal float64 // shares of the CPUs that other guests of the hypervisor took, in parts of the look
	Busy                  float64 // CPUs that programs used
	CPUs                  int
	Precedes              bool // the lab may go before other programs
	// of the lab's control group, where that is less than the CPUs it may use; zero: none
	Quota machine.Quota
}

// A look is short: a run waits for it.
const (
	looks    = 3
	lookTime = 150 * time.Millisecond // of one: 15 ticks of each CPU's clock
)

// Foresee watches a machine of so many CPUs on which nothing of a lab runs.
func Foresee(ctx context.Context, source interface {
	Machine(ctx context.Context) (machine.Machine, error)
}, cpus int) (o Outlook, err error) {
	last, err := source.Machine(ctx)
	o = Outlook{LeastSteal: math.Inf(1), CPUs: cpus, Precedes: last.Precedes}
	for range looks {
		if err == nil {
			err = bench.Sleep(ctx, lookTime)
		}
		if err != nil {
			return o, err
		}
		var now machine.Machine
		if now, err = source.Machine(ctx); err != nil {
			return o, err
		}
		d := now.Ticks.Sub(last.Ticks)
		total := float64(max(d.Total(), 1))
		steal := float64(d.Steal) / total
		o.LeastSteal, o.MostSteal = min(o.LeastSteal, steal), max(o.MostSteal, steal)
		o.Quota = now.TightQuota()
		o.Busy += float64(d.Total()-d.Idle-d.IOWait-d.Steal) / total * float64(cpus) / looks
		last = now
	}
	return o, nil
}

// What a quiet machine shows as well: a tick or two, and the look itself.
const (
	quietSteal = 0.04
	quietBusy  = 0.20 // CPUs
)

// Quiet reports whether nothing was seen that a run would notice.
func (o Outlook) Quiet() bool { return o.alone() && o.Quota.CPUs == 0 }

// alone reports whether others had next to nothing of the CPUs.
func (o Outlook) alone() bool { return o.MostSteal <= quietSteal && o.Busy <= quietBusy }

// Noise is what was seen, as far as it bears on a ratio.
func (o Outlook) noise() bench.Noise {
	return bench.Noise{Steal: o.MostSteal, Others: min(1, o.Busy/float64(max(o.CPUs, 1)))}
}

// String says what was seen and what to expect of it: "a neighbour takes 1 to 20 % of the CPU: up to twice as long, and
// at light loads the interval of a ratio of 2 is about ± 6 % wider".
func (o Outlook) String() string {
	var parts []string
	if !o.alone() {
		parts = append(parts, o.besideOthers())
	}
	if q := o.Quota; q.CPUs > 0 {
		parts = append(parts,
			fmt.Sprintf("a control group allows the lab %.3g of %s and stops its programs when they are used up (%s): "+
				"trials may be rejected; measure without (no --cpus for a container, no CPUQuota= in systemd)", q.CPUs,
				words.Counted(o.CPUs, "CPU"), q.File))
	}
	if len(parts) == 0 {
		return "the machine is quiet"
	}
	return strings.Join(parts, "; ")
}

// besideOthers says what others had and what to expect of it.
func (o Outlook) besideOthers() string {
	var seen []string
	if o.MostSteal > quietSteal {
		share := fmt.Sprintf("%.0f", 100*o.MostSteal)
		if least := fmt.Sprintf("%.0f", 100*o.LeastSteal); least != share {
			share = least + " to " + share
		}
		seen = append(seen, fmt.Sprintf("a neighbour takes %s %% of the CPU", share))
	}
	if o.Busy > quietBusy {
		seen = append(seen, fmt.Sprintf("other programs use %.1f of %s", o.Busy, words.Counted(o.CPUs, "CPU")))
	}
	if !o.Precedes && o.Busy > quietBusy {
		return strings.Join(seen, ", ") +
			", and the lab may not go before them (it takes root or CAP_SYS_NICE): trials will be rejected"
	}
	const lightCores = 0.02 // of a clean router at 100 Mbit/s
	wider := 100 * math.Expm1(o.noise().Bias(math.Log(2), lightCores))
	return fmt.Sprintf("%s: up to twice as long, and at light loads the interval of a ratio of 2 is about ± %.0f %% wider",
		strings.Join(seen, ", "), wider)
}
