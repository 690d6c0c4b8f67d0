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
	rank := func(s subject) int {
		if i := slices.Index(b.Devices, s.id); i >= 0 {
			return i
		}
		return len(b.Devices)
	}
	all := b.subjects(devices, nil)
	slices.SortFunc(all, func(x, y subject) int { return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.id, y.id)) })
	for _, s := range all {
		row := AnswerRow{DUT: s.id}
		for _, q := range b.Questions {
			row.Answers = append(row.Answers, b.answer(q, s))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// answer takes the claims of a question together: one that does not hold is enough
// for a no. Where only one was tested, the answer is of that.
func (b beside) answer(q Question, s subject) Answer {
	var out Answer
	var least analysis.Number
	untested := ""
	for _, c := range b.Claims {
		if !slices.Contains(q.Claims, c.ID) {
			continue
		}
		a, figure := b.reply(c, s)
		if !out.Asked || a.rank() < out.rank() || a.rank() == out.rank() && a.rank() < notTested && !(least < figure) {
			out, least = a, figure
		}
		if a.rank() == notTested && a.Asked {
			untested = c.Sweeps[0].along().Noun
		}
	}
	if len(q.Claims) > 1 && untested != "" && out.rank() < notTested {
		out.Detail += "; over " + untested + " not tested"
	}
	return out
}

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

// reply is what a claim says of one device, with the figure that decides between
// two claims. Of pairs, the last that the device is one of replies.
func (b beside) reply(c Claim, s subject) (Answer, analysis.Number) {
	judged := []subject{s}
	if c.Of == pairs {
		stranger := func(p Pair) bool { return p.InPlaceOf != "" || p.First != s.id && p.Second != s.id }
		if !slices.ContainsFunc(b.Pairs, func(p Pair) bool { return !stranger(p) }) {
			return Answer{}, 0
		}
		judged = slices.DeleteFunc(b.subjects(pairs, c.Sweeps), func(s subject) bool { return stranger(s.pair) })
	}
	if len(b.lacking(c)) > 0 || len(judged) == 0 {
		return Answer{Asked: true, Finding: c.ID}, 0
	}
	s = judged[len(judged)-1]
	j := c.Judge(asked{b, c, s})
	return Answer{true, j.Holds, j.Open, j.figure, j.detail, c.ID + "/" + s.id}, j.least
}
