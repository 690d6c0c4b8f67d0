package report

import (
	"html/template"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// answerTable is the table of the study's questions ready to print.
type answerTable struct {
	Questions []string
	Rows      []answerRow
	Note      template.HTML
}

type answerRow struct {
	Device string
	Cells  []answerCell
}

// answerCell is one answer; all is empty where the question does not concern the
// device. Link is the id of the finding on this page, if it is there.
type answerCell struct {
	Word, Class    string
	Figure, Detail string
	Link           string
}

// answerWords are what the outcomes are called in answer to a question, by class.
var answerWords = map[string]string{"holds": "yes", "fails": "no", "open": "left open", "untested": "not tested"}

func describeAnswers(a studies.Answers, findings []analysis.Finding) answerTable {
	t := answerTable{Questions: a.Questions, Note: prose(a.Note)}
	for _, row := range a.Rows {
		out := answerRow{Device: row.DUT}
		for _, answer := range row.Answers {
			cell := answerCell{}
			if answer.Asked {
				_, cell.Class = outcome(analysis.Finding{Holds: answer.Holds, Open: answer.Open})
				cell.Word = answerWords[cell.Class]
				cell.Figure, cell.Detail = unbroken(answer.Figure), unbroken(answer.Detail)
			}
			if slices.ContainsFunc(findings, func(f analysis.Finding) bool { return f.ID == answer.Finding }) {
				cell.Link = findingID(answer.Finding)
			}
			out.Cells = append(out.Cells, cell)
		}
		t.Rows = append(t.Rows, out)
	}
	return t
}

// findingID is the id that a finding has on the page, free of what links escape.
func findingID(finding string) string { return "finding-" + strings.ReplaceAll(finding, "/", ".") }
