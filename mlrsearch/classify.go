package mlrsearch

import (
	"cmp"
	"slices"
	"time"
)

// Trial is a Trial Result: what was asked of the Measurer and what came of it.
type Trial struct {
	Load     float64
	Duration time.Duration // intended
	// Loss is the ratio of packets lost to packets expected to be forwarded, 0 to 1.
	Loss float64
	// Effective is the time that the trial counts for; 0: Duration.
	Effective time.Duration
}

// seconds is the time that the trial counts for.
func (t Trial) seconds() float64 {
	if t.Effective > 0 {
		return t.Effective.Seconds()
	}
	return t.Duration.Seconds()
}

// Class says whether a load satisfies a goal, according to the trials so far.
type Class int8

// Undecided loads need further trials.
const (
	Undecided Class = iota
	Lower           // the load satisfies the goal
	Upper           // the load does not
)

func (c Class) String() string { return [...]string{"undecided", "lower bound", "upper bound"}[c] }

// sums are the total durations of a load's trials for one goal, in seconds: of full-length and of short trials, with
// low and with high loss.
type sums struct{ fullLow, fullHigh, shortLow, shortHigh float64 }

func (g Goal) sums(trials []Trial) (s sums) {
	for _, t := range trials {
		full, low := t.Duration >= g.FinalDuration, t.Loss <= g.LossRatio
		switch {
		case full && low:
			s.fullLow += t.seconds()
		case full:
			s.fullHigh += t.seconds()
		case low:
			s.shortLow += t.seconds()
		default:
			s.shortHigh += t.seconds()
		}
	}
	return s
}

// Classify classifies a load by all of its trials (RFC 9971, appendix A). Bad trials shorter than the final duration
// count as far as good short ones do not balance them; good short ones prove nothing else. A load is settled once
// trials within the duration sum could not change its class.
func (g Goal) Classify(trials []Trial) Class {
	s := g.sums(trials)
	balance := s.shortLow * g.ExceedRatio / (1 - g.ExceedRatio)
	bad := s.fullHigh + max(0, s.shortHigh-balance)
	whole := max(bad+s.fullLow, g.DurationSum.Seconds())
	allowed := whole * g.ExceedRatio
	switch {
	case !atMost(bad, allowed): // even if all that is missing were good
		return Upper
	case atMost(whole-s.fullLow, allowed): // even if all that is missing were bad
		return Lower
	}
	return Undecided
}

// atMost compares sums of durations that are equal but for rounding, s.
func atMost(a, b float64) bool { return a <= b+1e-9*max(1, b) }

// ConditionalThroughput is the forwarding rate to expect at a load that is a lower bound (RFC 9971, appendix B): the
// rate of the trial at the quantile that the exceed ratio gives, where trials that were not made count as lost.
func (g Goal) ConditionalThroughput(load float64, trials []Trial) float64 {
	var full []Trial
	var have float64
	for _, t := range trials {
		if t.Duration >= g.FinalDuration {
			full = append(full, t)
			have += t.seconds()
		}
	}
	slices.SortFunc(full, func(a, b Trial) int { return cmp.Compare(a.Loss, b.Loss) })
	rest := max(g.DurationSum.Seconds(), have) * (1 - g.ExceedRatio)
	loss := 1.0
	for i, t := range full {
		if i > 0 && atMost(rest, 0) {
			return load * (1 - loss)
		}
		loss = t.Loss
		rest -= t.seconds()
	}
	if !atMost(rest, 0) {
		loss = 1
	}
	return load * (1 - loss)
}
