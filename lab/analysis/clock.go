package analysis

import (
	"fmt"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// clock has the times of the trials, corrected for changes of the machine's clock during the run.
type clock struct {
	hours         []float64     // of each trial, since the first one
	back, forward time.Duration // how far the clock was set back and forward during the run
}

// Tolerances for the difference between recorded and expected times. A larger difference shows that the clock was set.
const (
	clockSlack = 2 * time.Second // plus a thousandth, because a clock runs faster or slower while it is being corrected
	blockSlack = 5 * time.Second // between two blocks
)

// clock computes the time of each trial. It compares the recorded times with the monotonic time of the records, or with
// the lengths of the blocks where records have no monotonic time. Records are in the order of measurement. Between two
// sittings any time may pass.
func (input Input) clock() clock {
	c := clock{hours: make([]float64, len(input.Trials))}
	blocks := input.blockTimes()
	for i := 1; i < len(input.Trials); i++ {
		step := input.Trials[i].Start.Sub(input.Trials[i-1].Start)
		should := input.due(i, step, blocks)
		if input.Trials[i].Node != input.Trials[i-1].Node { // two machines measured at the same time, by two clocks
			c.hours[i] = c.hours[i-1] + step.Hours()
			continue
		}
		if step < 0 && should == step && !input.timed(i) {
			should = windowOf(input.Trials[i-1])
			c.back -= step
		} else if step < should {
			c.back += should - step
		} else {
			c.forward += step - should
		}
		c.hours[i] = c.hours[i-1] + should.Hours()
	}
	return c
}

// due returns the time from the beginning of trial i-1 to that of trial i. It returns step, the recorded time, unless
// the other records show that step is wrong.
func (input Input) due(i int, step time.Duration, blocks map[blockID]blockTime) time.Duration {
	a, b := input.Trials[i-1], input.Trials[i]
	if a.Sitting != b.Sitting {
		return step
	}
	if input.timed(i) {
		due := seconds(b.Elapsed - a.Elapsed)
		if (step - due).Abs() > clockSlack+due.Abs()/1000 {
			return due
		}
		return step
	}
	if input.Alone && len(input.Run.MeasureRecords) == len(input.Trials) {
		// each record has the time since the record before it
		if last := seconds(input.Run.MeasureRecords[i-1].Seconds); step > last+seconds(input.Run.MeasureRecords[i].Seconds)+
			blockSlack {
			return last
		}
		return step
	}
	previous, next := blocks[input.blockOf(a)], blocks[input.blockOf(b)]
	if step < 0 || previous.Seconds == 0 || next.Seconds == 0 {
		return step
	}
	if input.blockOf(a) == input.blockOf(b) {
		if previous.astray && step == previous.longest && step > windowOf(a)+clockSlack {
			return windowOf(a)
		}
		return step
	}
	due := previous.after(a) + seconds(next.since-previous.until) + next.before(b)
	if step > due+blockSlack {
		return due
	}
	return step
}

// timed reports whether the monotonic clock measured the time from trial i-1 to trial i.
func (input Input) timed(i int) bool {
	a, b := input.Trials[i-1], input.Trials[i]
	return a.Sitting == b.Sitting && a.Elapsed > 0 && b.Elapsed > 0
}

// blockTime is a block's record with the times of its trials.
type blockTime struct {
	result.Block
	since, until float64       // seconds of all blocks recorded before this one, without and with this one
	astray       bool          // some trials are outside the block's time, so the clock was set during the block
	longest      time.Duration // from one of its trials to the next
}

// after returns the time from a trial's beginning to the block's end.
func (b blockTime) after(t Trial) time.Duration {
	if b.astray {
		return seconds(b.Seconds)
	}
	return b.Start.Add(seconds(b.Seconds)).Sub(t.Start)
}

// before returns the time from the block's beginning to a trial's beginning.
func (b blockTime) before(t Trial) time.Duration {
	if b.astray {
		return seconds(b.Seconds)
	}
	return t.Start.Sub(b.Start)
}

// blockTimes returns the times of the blocks that have a record and trials.
func (input Input) blockTimes() map[blockID]blockTime {
	out := map[blockID]blockTime{}
	var sum float64
	for _, b := range input.Run.Blocks {
		out[blockID{b.Cell().Without(input.Load...), b.AA, b.Block, b.Sitting}] = blockTime{
			Block: b, since: sum, until: sum + b.Seconds}
		sum += b.Seconds
	}
	for i, t := range input.Trials {
		id := input.blockOf(t)
		b, known := out[id]
		if !known {
			continue
		}
		end := t.Start.Add(windowOf(t)).Sub(b.Start)
		b.astray = b.astray || t.Start.Sub(b.Start) < -clockSlack || end > seconds(b.Seconds)+clockSlack
		if i > 0 && input.blockOf(input.Trials[i-1]) == id {
			b.longest = max(b.longest, t.Start.Sub(input.Trials[i-1].Start))
		}
		out[id] = b
	}
	return out
}

// windowOf returns the length of a trial's window, 0 if it is not known, and at most an hour.
func windowOf(t Trial) time.Duration { return seconds(max(0, min(t.Device["seconds"], 3600))) }

func seconds(s float64) time.Duration {
	if math.IsNaN(s) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// warnings returns a sentence for each direction in which the clock was set.
func (c clock) warnings() (out []string) {
	const ending = "times since then follow the order of the records and how long they took."
	if c.back > 0 {
		out = append(out,
			fmt.Sprintf("The clock of the machine was set back by %s during the run; %s", words.Lasting(c.back), ending))
	}
	if c.forward > 0 {
		out = append(out, fmt.Sprintf(
			"The clock of the machine was set forward by %s during the run, or the machine slept; %s", words.Lasting(c.forward),
			ending))
	}
	return out
}
