package compare

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// An emulated CPU makes some instructions much dearer than others, and the emulator's own state differs from boot to
// boot: what a packet costs there can be set against a clean router of the same boot, and against nothing else. So
// where either run was emulated, ratios to the clean router are compared, and absolute figures are not.

// markOf is the mark of the runs together: that of either.
func markOf(sides ...*Side) string {
	for _, s := range sides {
		if s != nil && s.VM.Mark() != "" {
			return s.VM.Mark()
		}
	}
	return ""
}

// marked says first what holds for all figures of the comparison; empty without a mark.
func (c *Comparison) marked() string {
	if c.Mark == "" {
		return ""
	}
	where := "the run"
	switch {
	case c.A == nil:
	case c.A.VM.Mark() == "":
		where = "B, not A,"
	case c.B.VM.Mark() == "":
		where = "A, not B,"
	default:
		where = "A and B, each in a boot of its own,"
	}
	text := fmt.Sprintf("%s: %s had a CPU that QEMU emulates. ", words.Capitalised(c.Mark), where)
	if c.ratio() {
		return text + "Only ratios to the clean router of the same boot are compared and judged."
	}
	return text + "This measure has no ratio to a clean router of the same boot, so nothing is compared or judged."
}

// incomparable reports whether the judged figures are absolute ones, of an emulated CPU.
func (c *Comparison) incomparable() bool { return c.Mark != "" && !c.ratio() }

const noRatio = "an emulated CPU's absolute figures are not compared"

// markInBrackets is the mark behind a word.
func (c *Comparison) markInBrackets() string {
	if c.Mark == "" {
		return ""
	}
	return " (" + c.Mark + ")"
}

// machineOf is a virtual machine as a difference between two runs.
func machineOf(e result.Environment) string {
	if e.VM == nil {
		return ""
	}
	return fmt.Sprintf("%s, %d MiB", e.VM, e.VM.MemoryMiB)
}
