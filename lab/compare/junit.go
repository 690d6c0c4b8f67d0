package compare

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// The elements of JUnit XML that Jenkins, GitLab, GitHub's test reporters and
// others have in common: one test case a cell and limit.
type (
	junitSuites struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   int        `xml:"errors,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"time,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
		Out      string      `xml:"system-out"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Time    string       `xml:"time,attr"`
		Failure *junitResult `xml:"failure"`
		Skipped *junitResult `xml:"skipped"`
	}
	junitResult struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the gate's decisions as a test report. A decision that cannot
// be told is a skipped test, or a failed one in a strict gate.
func JUnit(w io.Writer, c Comparison) error {
	if c.Gate == nil {
		return fmt.Errorf("a JUnit report needs a limit to report on")
	}
	suite := junitSuite{Name: "gateweigh compare", Time: "0"}
	for i := range c.Cells {
		cell := &c.Cells[i]
		if d := cell.Regression; d != nil {
			name := fmt.Sprintf("%s: at most %s %s than A", Label(cell.At), percent(float64(c.Gate.MaxRegressionPct)/100), c.words().grown)
			suite.add(c, cell.At.Text(result.DUT), name, d, "change "+changeText(cell.Change))
		}
		if d := cell.Overhead; d != nil {
			name := fmt.Sprintf("%s: at most %s dearer than a clean router", Label(cell.At), percent(float64(c.Gate.MaxOverheadPct)/100))
			suite.add(c, cell.At.Text(result.DUT), name, d, "overhead × "+ratioText(cell.B.Judged))
		}
	}
	if c.Gate.MaxRegressionPct.Known() {
		for _, cell := range c.OnlyA {
			suite.add(c, cell.Text(result.DUT), Label(cell)+": measured in B", &Decision{Word: CannotTell, Note: "only A has this cell"}, "")
		}
	}
	suite.sumUp(c)
	var text strings.Builder
	if err := Text(&text, c); err != nil {
		return err
	}
	suite.Out = text.String()
	all := junitSuites{Name: suite.Name, Tests: suite.Tests, Failures: suite.Failures, Skipped: suite.Skipped, Time: "0", Suite: suite}
	data, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}

// add makes a test case of a decision.
func (s *junitSuite) add(c Comparison, dut, name string, d *Decision, figures string) {
	test := junitCase{Class: "gateweigh." + dut, Name: name, Time: "0"}
	outcome := &junitResult{Message: d.Word + ": " + d.Note, Text: figures}
	switch {
	case d.fails(c.Gate.Strict):
		outcome.Type = d.Word
		test.Failure = outcome
	case d.Word == CannotTell:
		test.Skipped = outcome
	}
	s.Cases = append(s.Cases, test)
}

// sumUp counts. A gate that fails without a failed case, because nothing could
// be judged, gets one: a report without failures would pass for success.
func (s *junitSuite) sumUp(c Comparison) {
	failed := func(t junitCase) bool { return t.Failure != nil }
	for _, t := range s.Cases {
		if failed(t) {
			s.Failures++
		}
		if t.Skipped != nil {
			s.Skipped++
		}
	}
	if !c.Gate.Passed && s.Failures == 0 {
		s.Cases = append(s.Cases, junitCase{
			Class: "gateweigh", Name: "something could be judged", Time: "0",
			Failure: &junitResult{Message: c.Gate.Sentence, Type: CannotTell},
		})
		s.Failures++
	}
	s.Tests = len(s.Cases)
}
