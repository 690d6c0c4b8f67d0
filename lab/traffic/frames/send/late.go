package send

import (
	"time"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/scale"
)

// Late is the distribution of the frames' delays after their due times, in steps of at most an eighth of the value. The
// zero value has no frames. Copies are independent.
type Late struct {
	Frames int64
	Sum    time.Duration
	Max    time.Duration
	steps  [lateSteps]uint64 // by the places of lateScale
}

const (
	lateScale = scale.Scale(3)
	lateSteps = (64 - lateScale + 1) << lateScale // its size for 64 bits
)

func (l *Late) add(ns uint64) {
	l.Frames++
	l.Sum += time.Duration(ns)
	l.Max = max(l.Max, time.Duration(ns))
	l.steps[lateScale.Place(ns)]++
}

// Since returns the counts since an earlier reading. Max stays the largest delay of all frames.
func (l Late) Since(before Late) Late {
	l.Frames -= before.Frames
	l.Sum -= before.Sum
	for i, n := range before.steps {
		l.steps[i] -= n
	}
	return l
}

// Mean is 0 without frames.
func (l *Late) Mean() time.Duration {
	if l.Frames == 0 {
		return 0
	}
	return l.Sum / time.Duration(l.Frames)
}

// Quantile returns the delay that a share q of the frames, 0 to 1, did not exceed. It is the upper end of a step of the
// distribution, and at most Max. It is 0 without frames.
func (l *Late) Quantile(q float64) time.Duration {
	_, greatest, some := lateScale.Quantile(l.steps[:], q)
	if !some {
		return 0
	}
	return min(time.Duration(greatest), l.Max)
}
