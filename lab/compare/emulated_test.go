// Tests of comparisons of runs with an emulated CPU. simulate makes a run of a Spec, base being a small one, in which
// the device allowlist costs a factor more; renderAll returns the comparison in every form (compare_test.go).

package compare_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/result"
)

func emulated(input compare.Input) compare.Input {
	input.Run.Environment.VM = &result.VM{
		Kernel: "debian", Release: "6.1.0-56-amd64", Accelerator: result.TCG, MemoryMiB: 1500}
	return input
}

// TestEmulatedRunsAreComparedByRatio: the mark comes first in every form, ratios are judged, and absolute figures are
// left out, also between two guests that are alike.
func TestEmulatedRunsAreComparedByRatio(t *testing.T) {
	here, guest, other := simulate(base, 1, 1), emulated(simulate(base, 2, 1)), emulated(simulate(base, 3, 1.2))
	for name, c := range map[string]compare.Comparison{"beside a native run": compare.Runs(here, guest, gated(0.05)),
		"two guests": compare.Runs(guest, other, gated(0.05))} {
		if c.Mark != result.EmulatedMark || c.SameMachine || len(c.Cells) == 0 || len(c.Cells[0].Changes) > 0 ||
			!c.Cells[0].Change.HasInterval() {
			t.Errorf("%s: mark %q, same machine %t, %+v", name, c.Mark, c.SameMachine, c.Cells)
		}
		text := renderAll(t, c)
		var markdown bytes.Buffer
		if err := compare.Markdown(&markdown, c); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text, "Relative, emulated CPU") || strings.Contains(text, "ns/packet") ||
			strings.Count(text, result.EmulatedMark) < 2 {
			t.Errorf("%s:\n%s", name, text)
		}
		if !strings.Contains(markdown.String(), "**Relative, emulated CPU") {
			t.Errorf("%s:\n%s", name, markdown.String())
		}
		var xml bytes.Buffer
		if err := compare.JUnit(&xml, c); err != nil || strings.Count(xml.String(), result.EmulatedMark) < len(c.Cells) ||
			!strings.Contains(xml.String(), "Relative, emulated CPU") {
			t.Errorf("%s: JUnit, %v:\n%s", name, err, xml.String())
		}
		var page bytes.Buffer
		if err := compare.HTML(
			&page, []compare.Comparison{c}, func(name string) string { return name + "/report.html" }); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`<p class="mark">Relative, emulated CPU`, "(" + result.EmulatedMark + ")", `href="` +
			c.A.Name + `/report.html"`, `href="` + c.B.Name + `/report.html"`} {
			if !strings.Contains(page.String(), want) {
				t.Errorf("%s: the page lacks %s", name, want)
			}
		}
		if strings.Contains(page.String(), "://") {
			t.Errorf("%s: the page is not self-contained", name)
		}
		if !strings.Contains(c.Gate.Sentence, result.EmulatedMark) {
			t.Errorf("%s: %s", name, c.Gate.Sentence)
		}
	}
	if c := compare.Runs(guest, other, gated(0.05)); countVerdicts(c, compare.Worse) != 2 || c.Gate.Passed {
		t.Errorf("a device that costs 1.2 times as much: %d worse, %s", countVerdicts(c, compare.Worse), c.Gate.Sentence)
	}
	if c := compare.Runs(here, simulate(base, 4, 1), compare.Defaults()); c.Mark != "" ||
		!strings.Contains(renderAll(t, c), "ns/packet") {
		t.Errorf("native runs: mark %q\n%s", c.Mark, renderAll(t, c))
	}
}

// TestEmulatedAbsolutesAreNotJudged: login storms have no clean router beside them, so a gate refuses them.
func TestEmulatedAbsolutesAreNotJudged(t *testing.T) {
	c := compare.Runs(storms(), emulated(storms()), gated(0.05))
	if c.Gate.Passed || !strings.Contains(c.Gate.Sentence, "absolute figures are not compared") ||
		countVerdicts(c, compare.Inconclusive) != len(c.Cells) || len(c.Cells) == 0 {
		t.Errorf("%s, %+v", c.Gate.Sentence, c.Cells)
	}
}
