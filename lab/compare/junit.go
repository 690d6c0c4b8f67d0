// A comparison as JUnit XML, which CI systems read.

package compare

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// These are the elements of JUnit XML that Jenkins, GitLab and GitHub's test reporters have in common. Each cell and
// limit is one test case.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		junitCounts
		Suite junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		junitCounts
		Cases []junitCase `xml:"testcase"`
		Out   string      `xml:"system-out"`
	}
	junitCounts struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
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

// JUnit writes the gate's decisions as a test report. A cell without an answer is a failed test. With AllowUnknown it
// is a skipped one.
func JUnit(w io.Writer, c Comparison) error {
	if c.Gate == nil {
		return fmt.Errorf("a JUnit report needs a limit to report on")
	}
	suite := junitSuite{junitCounts: junitCounts{Name: "gateweigh compare", Time: "0"}}
	for i := range c.Cells {
		cell := &c.Cells[i]
		for _, l := range c.limits() {
			d := **l.decision(cell)
			figures := "change " + changeText(d.Interval)
			if l.beyond == OverLimit {
				figures = c.figure() + " " + ratioText(d.Interval)
			}
			suite.add(c, cell.Dimensions, l.text, d, figures+c.markInBrackets())
		}
	}
	for _, m := range c.Gate.Fallen {
		suite.add(c, m.Cell, "managed as in A", Decision{Word: Regressed, Note: m.Why}, "")
	}
	for _, m := range c.Gate.Missing {
		suite.add(c, m.Cell, "measured", Decision{Word: CannotTell, Note: m.Why}, "")
	}
	if !c.Gate.Passed && suite.Failures == 0 {
		// Without this test case, a report in which no cell is within would have no failure and pass.
		suite.Cases = append(suite.Cases, junitCase{
			Class: "gateweigh", Name: "something could be judged", Time: "0",
			Failure: &junitResult{Message: c.Gate.Sentence, Type: CannotTell},
		})
		suite.Failures++
	}
	suite.Tests = len(suite.Cases)
	var text strings.Builder
	if err := Text(&text, c); err != nil {
		return err
	}
	suite.Out = text.String()
	data, err := xml.MarshalIndent(junitSuites{junitCounts: suite.junitCounts, Suite: suite}, "", "  ")
	if err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}

// add makes a test case of a decision.
func (s *junitSuite) add(c Comparison, cell result.Cell, question string, d Decision, figures string) {
	test := junitCase{
		Class: "gateweigh." + cell.Text(result.DUT), Name: cmp.Or(c.dimensions.Label(cell), "the rest") + ": " + question,
		Time: "0"}
	outcome := &junitResult{Message: d.Word + ": " + d.Note, Text: figures}
	switch {
	case d.Word == Regressed, d.Word == OverLimit, c.Gate.Strict && d.Word == CannotTell:
		outcome.Type = d.Word
		test.Failure = outcome
		s.Failures++
	case d.Word == CannotTell:
		test.Skipped = outcome
		s.Skipped++
	}
	s.Cases = append(s.Cases, test)
}
