package compare

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// An emulated CPU makes some instructions far more expensive than others, and the emulator differs from boot to boot.
// So the cost of a packet can be compared only with a clean router of the same boot. If one of the runs had an emulated
// CPU, ratios to the clean router are compared, and absolute figures are not.

// markOf returns the mark of the first run that has one.
func markOf(sides ...*Side) string {
	for _, s := range sides {
		if s != nil && s.VM.Mark() != "" {
			return s.VM.Mark()
		}
	}
	return ""
}

// marked returns the sentence about the emulated CPU that goes before all figures. It is empty without a mark.
func (c *Comparison) marked() string {
	if c.Mark == "" {
		return ""
	}
	emulated := "the run"
	switch {
	case c.A == nil:
	case c.A.VM.Mark() == "":
		emulated = "B, not A,"
	case c.B.VM.Mark() == "":
		emulated = "A, not B,"
	default:
		emulated = "A and B, each in a boot of its own,"
	}
	text := fmt.Sprintf("%s: %s had a CPU that QEMU emulates. ", words.Capitalised(c.Mark), emulated)
	if c.ratio() {
		return text + "Only ratios to the clean router of the same boot are compared and judged."
	}
	return text + "This measure has no ratio to a clean router of the same boot, so nothing is compared or judged."
}

// incomparable reports whether the judged figures are absolute figures of an emulated CPU.
func (c *Comparison) incomparable() bool { return c.Mark != "" && !c.ratio() }

// noRatio is the reason why such a comparison judges nothing.
const noRatio = "an emulated CPU's absolute figures are not compared"

// markInBrackets returns the mark as it follows a word.
func (c *Comparison) markInBrackets() string {
	if c.Mark == "" {
		return ""
	}
	return " (" + c.Mark + ")"
}

// machineOf describes the virtual machine of a run, for the list of differences.
func machineOf(e result.Environment) string {
	if e.VM == nil {
		return ""
	}
	return fmt.Sprintf("%s, %d MiB", e.VM, e.VM.MemoryMiB)
}
