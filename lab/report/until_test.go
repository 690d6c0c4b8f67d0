package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestRoundsAreCalledSo: for a run with interleaved labs the report speaks of rounds, for other runs of blocks. It does
// so for the number that is still needed, and for the numbers after which cells were judged (looks). N stands for the
// word.
func TestRoundsAreCalledSo(t *testing.T) {
	needed := 7
	for mode, noun := range map[string]string{result.ModeDuet: "block", result.ModeInterleaved: "round"} {
		s := analysis.Summary{
			Experiment: "quick", Measure: "cost", Noun: "trial", Unit: "block", Mode: mode, Confidence: 0.95, Delta: 0.05,
			Until: &analysis.Until{PrecisionPct: 2, Confidence: 0.99, Looks: []int{10, 16}},
			Cells: []analysis.Cell{
				{Verdict: "inconclusive", BlocksNeeded: &needed},
				{Verdict: "different", Ended: &analysis.Ended{Blocks: 16, WidthPct: 3, Bound: result.BoundBlocks}},
			},
		}
		var table, file bytes.Buffer
		if err := Terminal(&table, s, 0); err != nil {
			t.Fatal(err)
		}
		if err := CSV(&file, s); err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(table.String(), "\u00a0", " ") + file.String()
		for _, want := range []string{"inconclusive (+7 Ns)", "1 had all Ns before", "Looked at after 10 and 16 Ns",
			"all Ns were measured at ±3 %, after 16 Ns", ",all Ns were measured,"} {
			if want = strings.ReplaceAll(want, "N", noun); !strings.Contains(text, want) {
				t.Errorf("%s: table and CSV lack %q:\n%s", mode, want, text)
			}
		}
		if head := endedGrid(s).Head[1].Name; head != strings.ToUpper(noun[:1])+noun[1:]+"s" {
			t.Errorf("%s: the table of ends counts %s", mode, head)
		}
	}
}
