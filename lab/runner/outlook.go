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

// Outlook says how quiet a machine was during a short observation before a run.
type Outlook struct {
	// smallest and largest share of the CPUs that other guests of the hypervisor took, over parts of the observation
	LeastSteal, MostSteal float64
	Busy                  float64 // CPUs that programs used
	CPUs                  int
	Precedes              bool // the lab may have priority over other programs
	// CPU quota of the lab's control group, if it is less than the CPUs that the lab may use; zero: no quota
	Quota machine.Quota
}

// The observation is short, because the run waits for it.
const (
	looks    = 3
	lookTime = 150 * time.Millisecond // of one part: 15 ticks of each CPU's clock
)

// Foresee observes a machine with this number of CPUs while no lab runs on it.
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

// On a quiet machine the observation shows up to this much: one or two ticks, and the observation itself.
const (
	quietSteal = 0.04
	quietBusy  = 0.20 // CPUs
)

// Quiet reports whether nothing was seen that would disturb a run.
func (o Outlook) Quiet() bool { return o.alone() && o.Quota.CPUs == 0 }

// alone reports whether others used almost nothing of the CPUs.
func (o Outlook) alone() bool { return o.MostSteal <= quietSteal && o.Busy <= quietBusy }

// Noise returns the observed noise in the form that affects a ratio.
func (o Outlook) noise() bench.Noise {
	return bench.Noise{Steal: o.MostSteal, Others: min(1, o.Busy/float64(max(o.CPUs, 1)))}
}

// String describes the observation and its consequence: "a neighbour takes 1 to 20 % of the CPU: up to twice as long,
// and at light loads the interval of a ratio of 2 is about ± 6 % wider".
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

// besideOthers says what others used and what the consequence is.
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
	const lightCores = 0.02 // CPU of a clean router at 100 Mbit/s
	wider := 100 * math.Expm1(o.noise().Bias(math.Log(2), lightCores))
	return fmt.Sprintf("%s: up to twice as long, and at light loads the interval of a ratio of 2 is about ± %.0f %% wider",
		strings.Join(seen, ", "), wider)
}
