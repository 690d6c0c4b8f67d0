package send

import (
	"math/bits"
	"time"
)

// Late is how long after their due times frames left, in steps of at most an eighth of the value.
type Late struct {
	Frames int64
	Sum    time.Duration
	Max    time.Duration
	steps  [lateSteps]int64
}

const (
	lateBits  = 3 // steps to each power of two: 8
	lateSteps = (64 - lateBits + 1) << lateBits
)

// lateStep is the step of a lateness in ns; below 8 ns each value is a step of its own.
func lateStep(ns uint64) int {
	power := max(bits.Len64(ns), lateBits+1) - lateBits - 1
	return power<<lateBits + int(ns>>power)
}

// stepEnd is the largest value of a step, ns.
func stepEnd(step int) uint64 {
	power := max(step>>lateBits-1, 0)
	return uint64(step-power<<lateBits+1)<<power - 1
}

func (l *Late) add(ns uint64) {
	l.Frames++
	l.Sum += time.Duration(ns)
	l.Max = max(l.Max, time.Duration(ns))
	l.steps[lateStep(ns)]++
}

// Mean is 0 without frames.
func (l *Late) Mean() time.Duration {
	if l.Frames == 0 {
		return 0
	}
	return l.Sum / time.Duration(l.Frames)
}

// Quantile is the lateness that a share q of the frames, 0 to 1, did not exceed: the upper end of its step, at most
// Max. It is 0 without frames.
func (l *Late) Quantile(q float64) time.Duration {
	rest := int64(q * float64(l.Frames))
	for step, n := range l.steps {
		if rest -= n; rest < 0 || rest == 0 && n > 0 {
			return min(time.Duration(stepEnd(step)), l.Max)
		}
	}
	return l.Max
}
