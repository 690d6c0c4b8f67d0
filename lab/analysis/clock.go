package analysis

import (
	"fmt"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// clock is when trials were measured, whatever became of the machine's clock meanwhile.
type clock struct {
	hours         []float64     // of each trial, since the first
	back, forward time.Duration // by how much the clock was set in between
}

// How far times of records may be apart from what they should be.
const (
	clockSlack = 2 * time.Second // and a thousandth, as a clock that is being set right goes faster or slower
	blockSlack = 5 * time.Second // between two blocks
)

// clock compares the clock with the monotonic time of the records, where they have it, and otherwise with how long
// blocks took. Records stand in the order they were measured. From one sitting to the next any time may pass.
func (input Input) clock() clock {
	c := clock{hours: make([]float64, len(input.Trials))}
	blocks := input.blockTimes()
	for i := 1; i < len(input.Trials); i++ {
		step := input.Trials[i].Start.Sub(input.Trials[i-1].Start)
		should := input.due(i, step, blocks)
		if input.Trials[i].Node != input.Trials[i-1].Node { // at the same time, by two clocks
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

// due is how much later than the trial before it a trial began: step, unless that cannot be.
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
	if input.Alone && len(input.Run.Own) == len(input.Trials) { // each record is of the time since the one before
		if last := seconds(input.Run.Own[i-1].Seconds); step > last+seconds(input.Run.Own[i].Seconds)+blockSlack {
			return last
		}
		return step
	}
	of, next := blocks[input.blockOf(a)], blocks[input.blockOf(b)]
	if step < 0 || of.Seconds == 0 || next.Seconds == 0 {
		return step
	}
	if input.blockOf(a) == input.blockOf(b) {
		if of.astray && step == of.longest && step > windowOf(a)+clockSlack {
			return windowOf(a)
		}
		return step
	}
	due := of.after(a) + seconds(next.since-of.until) + next.before(b)
	if step > due+blockSlack {
		return due
	}
	return step
}

// timed reports whether the monotonic clock tells a trial's distance from the one before it.
func (input Input) timed(i int) bool {
	a, b := input.Trials[i-1], input.Trials[i]
	return a.Sitting == b.Sitting && a.Elapsed > 0 && b.Elapsed > 0
}

// blockTime is what a block's record says of its time.
type blockTime struct {
	result.Block
	since, until float64       // seconds of the blocks recorded before it, and with it
	astray       bool          // its trials are not all within it: the clock was set during it
	longest      time.Duration // from one of its trials to the next
}

// after is the time from a trial's beginning to the block's end.
func (b blockTime) after(t Trial) time.Duration {
	if b.astray {
		return seconds(b.Seconds)
	}
	return b.Start.Add(seconds(b.Seconds)).Sub(t.Start)
}

// before is the time from the block's beginning to a trial's.
func (b blockTime) before(t Trial) time.Duration {
	if b.astray {
		return seconds(b.Seconds)
	}
	return t.Start.Sub(b.Start)
}

// blockTimes are the times of blocks that have a record and trials.
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

// windowOf is the length of a trial's window, as far as it is known.
func windowOf(t Trial) time.Duration { return seconds(max(0, min(t.Device["seconds"], 3600))) }

func seconds(s float64) time.Duration {
	if math.IsNaN(s) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// warnings say that the clock of the machine cannot be trusted.
func (c clock) warnings() (out []string) {
	const then = "times since then follow the order of the records and how long they took."
	if c.back > 0 {
		out = append(out,
			fmt.Sprintf("The clock of the machine was set back by %s during the run; %s", words.Lasting(c.back), then))
	}
	if c.forward > 0 {
		out = append(out, fmt.Sprintf(
			"The clock of the machine was set forward by %s during the run, or the machine slept; %s", words.Lasting(c.forward),
			then))
	}
	return out
}
