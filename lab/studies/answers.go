package studies

import (
	"cmp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Answers are a study's questions, each put to every device: a row a device, a
// column a question.
type Answers struct {
	Questions []string
	Rows      []AnswerRow // none when the runs hold none of the study's sweeps
	Note      string      // sentences to read with it
}

// AnswerRow is one device; Answers are in the order of the questions.
type AnswerRow struct {
	DUT     string
	Answers []Answer
}

// Answer is what findings say of one question for one device.
type Answer struct {
	// Asked is false where the question does not concern the device; all else is
	// empty then.
	Asked bool
	// Holds and Open are as in analysis.Finding; a yes is true.
	Holds *bool
	Open  bool
	// Figure is a mean with its interval and what it is of; empty when not tested.
	Figure string
	Detail string // number of blocks, and where it was judged
	// Finding is the ID of the one that decides.
	Finding string
}

func (b beside) answers() Answers {
	out := Answers{Note: b.QuestionsNote}
	for _, q := range b.Questions {
		out.Questions = append(out.Questions, q.Text)
	}
	all := b.subjects(devices, nil)
	slices.SortFunc(all, func(x, y subject) int {
		place := func(s subject) uint { return uint(slices.Index(b.Devices, s.id)) } // of others the largest
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

// answer takes the claims of a question together: one that does not hold is enough
// for a no. Where only one was tested, the answer is of that. Of pairs, the last that
// the device is one of counts.
func (b beside) answer(q Question, dut string) Answer {
	var out Answer
	var least analysis.Number
	untested := ""
	for _, c := range b.Claims {
		asked := c.Of != pairs || slices.ContainsFunc(b.Pairs, func(p Pair) bool { return p.has(dut) })
		if !asked || !slices.Contains(q.Claims, c.ID) {
			continue
		}
		var of judgement
		a := Answer{Asked: true, Finding: c.ID}
		for _, j := range b.judged {
			if j.claim == c.ID && (j.subject.id == dut || j.subject.pair.has(dut)) {
				of, a = j, Answer{true, j.Holds, j.Open, j.figure, j.detail, j.ID}
			}
		}
		if !out.Asked || a.rank() < out.rank() || a.rank() == out.rank() && a.rank() < notTested && !(least < of.least) {
			out, least = a, of.least
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

// has reports whether a device is one of a pair that is not compared in place of another.
func (p Pair) has(dut string) bool { return p.InPlaceOf == "" && (p.First == dut || p.Second == dut) }

const notTested = 3

// rank says which of two answers counts: no before left open before yes.
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
