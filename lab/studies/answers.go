package studies

import (
	"cmp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Answers is the table of a study's questions. It has one row for each device and one column for each question.
type Answers struct {
	Questions []string
	Rows      []AnswerRow // empty if the runs have none of the study's sweeps
	Note      string      // sentences below the table
}

// AnswerRow is the row of one device. Answers are in the order of the questions.
type AnswerRow struct {
	DUT     string
	Answers []Answer
}

// Answer answers one question for one device, from findings.
type Answer struct {
	// Asked is false if the question does not concern the device. All other fields are then empty.
	Asked bool
	// Holds and Open are as in analysis.Finding; true is a yes.
	Holds *bool
	Open  bool
	// Figure names a figure with its mean and interval. It is empty when the claim was not tested.
	Figure string
	Detail string // number of blocks, and the conditions
	// Finding is the ID of the finding that decides.
	Finding string
}

func (b studyInRuns) answers() Answers {
	out := Answers{Note: b.QuestionsNote}
	if len(b.Questions) == 0 {
		return out
	}
	for _, q := range b.Questions {
		out.Questions = append(out.Questions, q.Text)
	}
	all := b.subjects(Claim{Subjects: devices})
	slices.SortFunc(all, func(x, y subject) int {
		// -1 (not listed) becomes the largest number
		place := func(s subject) uint { return uint(slices.Index(b.Devices, s.id)) }
		return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(x.id, y.id))
	})
	for _, s := range all {
		row := AnswerRow{DUT: s.id}
		for _, q := range b.Questions {
			row.Answers = append(row.Answers, b.answer(q, s.id))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// answer combines the claims of a question. One claim that does not hold makes the answer no. If only one was tested,
// that claim decides. For claims about pairs, the last pair with the device counts.
func (b studyInRuns) answer(q Question, dut string) Answer {
	var out Answer
	var least analysis.Number
	untested := ""
	for _, c := range b.Claims {
		concerned := c.Subjects != pairs || slices.ContainsFunc(b.Pairs, func(p Pair) bool { return p.hasDevice(dut) })
		if !concerned || !slices.Contains(q.Claims, c.ID) {
			continue
		}
		var deciding judgement
		a := Answer{Asked: true, Finding: c.ID}
		for _, j := range b.judged {
			if j.claim == c.ID && (j.subject.id == dut || j.subject.pair.hasDevice(dut)) {
				deciding, a = j, Answer{true, j.Holds, j.Open, j.figure, j.detail, j.ID}
			}
		}
		if !out.Asked || a.rank() < out.rank() ||
			a.rank() == out.rank() && a.rank() < notTested && !(least < deciding.least) {
			out, least = a, deciding.least
		}
		if a.rank() == notTested {
			untested = c.Sweeps[0].along().Noun
		}
	}
	if len(q.Claims) > 1 && untested != "" && out.rank() < notTested {
		out.Detail += "; over " + untested + " not tested"
	}
	return out
}

// hasDevice reports whether a device belongs to the pair. It is false for a pair that replaces another one.
func (p Pair) hasDevice(dut string) bool {
	return p.InPlaceOf == "" && (p.First == dut || p.Second == dut)
}

const notTested = 3

// rank orders answers. The lowest one counts: no, left open, yes, not tested.
func (a Answer) rank() int {
	switch {
	case a.Open:
		return 1
	case a.Holds == nil:
		return notTested
	case *a.Holds:
		return 2
	}
	return 0
}
