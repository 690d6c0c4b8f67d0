package studies

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Answers are the study's questions, each put to every device: a row a device, a
// column a question.
type Answers struct {
	Questions []string
	Rows      []AnswerRow // none when the runs hold neither of the study's experiments
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

// mechanisms are the ways in which gateways handle packets, a device each, in the
// order of the table. Other devices follow by name.
var mechanisms = []string{ownTun, "gateway-nfqueue", "gateway-ebpf", standIn, "coovachilli"}

// question is a column of the table.
type question struct {
	text   string
	answer func(study1, string) Answer
}

var questions = []question{
	{"More than double the CPU?", answerDouble},
	{"Bandwidth dominant?", answerOf("bandwidth-dominates", bandwidthDominates)},
	{"Clients negligible beyond 10?", answerOf("negligible-beyond-10-clients", beyondTenNegligible)},
	{"Do TUN and NFQUEUE converge?", answerConverge},
}

// Questions answers the study's questions for every portal that was measured.
func Questions(runs ...analysis.Summary) Answers { return answers(newStudy1(runs)) }

func answers(s study1) Answers {
	out := Answers{Note: "Clients and converging are judged at the study's load where the device carries it, else at the load given; double at every level, also where the device is at its limit. A yes or no needs the whole interval (95 %, over blocks) on one side. Double: the least CPU per bit over the clean router's of all levels. " +
		"Bandwidth: the factor by which it raises CPU beside that of the clients. Negligible: the rise of CPU from 10 to 100 clients lies within δ. " +
		"Converge: what one costs over the other, with the fewest and the most clients, and what becomes of the factor between them."}
	for _, q := range questions {
		out.Questions = append(out.Questions, q.text)
	}
	for _, dut := range devices(s) {
		row := AnswerRow{DUT: dut}
		for _, q := range questions {
			row.Answers = append(row.Answers, q.answer(s, dut))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// devices are the portals that any run has: the mechanisms, then others by name.
func devices(s study1) []string {
	all := claim{Portals: true}.routers(s)
	var out []string
	for _, dut := range mechanisms {
		if slices.Contains(all, dut) {
			out = append(out, dut)
		}
	}
	slices.Sort(all)
	return append(out, slices.DeleteFunc(all, func(dut string) bool { return slices.Contains(mechanisms, dut) })...)
}

// answerOf answers by one claim.
func answerOf(id string, judge func(study1, string) judgement) func(study1, string) Answer {
	return func(s study1, dut string) Answer {
		needs := claims[slices.IndexFunc(claims, func(c claim) bool { return c.ID == id })]
		if len(needs.lacking(s)) > 0 {
			return Answer{Asked: true, Finding: id}
		}
		return judge(s, dut).answer(id + "/" + dut)
	}
}

// answer is the judgement in short.
func (j judgement) answer(id string) Answer {
	return Answer{Asked: true, Holds: j.holds, Open: j.open, Figure: j.figure, Detail: j.detail, Finding: id}
}

// answerDouble takes both claims on double CPU together: one level at which it is
// not double is enough for a no. Where only one was tested, the answer is of that.
func answerDouble(s study1, dut string) Answer {
	load := answerOf("portals-double-cpu-at-any-bandwidth", doublesOverLoad)(s, dut)
	clients := answerOf("portals-double-cpu-with-any-clients", doublesOverClients)(s, dut)
	no := func(a Answer) bool { return a.Holds != nil && !*a.Holds }
	tested := func(a Answer) bool { return a.Holds != nil || a.Open }
	switch {
	case !tested(clients):
		return load.alone(tested(load), "clients")
	case !tested(load):
		return clients.alone(true, "bandwidth")
	case no(load) != no(clients):
		if no(load) {
			return load
		}
		return clients
	case load.Open != clients.Open:
		if load.Open {
			return load
		}
		return clients
	}
	if s.load.doubles(dut).least.Mean < doublesOverClients(s, dut).least.Mean {
		return load
	}
	return clients
}

// alone says that the other of two sweeps was not tested.
func (a Answer) alone(tested bool, other string) Answer {
	if tested {
		a.Detail += "; over " + other + " not tested"
	}
	return a
}

// answerConverge is that of the pair which the device is one of: one gateway by
// either mechanism before the study's pair.
func answerConverge(s study1, dut string) Answer {
	concerns := slices.Contains([]string{ownTun, scenarios[1].DUT, scenarios[2].DUT}, dut)
	if concerns && !s.measuredClients() {
		return Answer{Asked: true, Finding: "portals-converge"}
	}
	var out Answer
	for _, p := range s.pairs() {
		if concerns && p.has(dut) && p.second != standIn && (!out.Asked || p.first == ownTun) {
			out = s.converge(p).answer("portals-converge/" + p.id())
		}
	}
	if concerns && !out.Asked { // there was nothing to hold it against
		return Answer{Asked: true, Finding: "portals-converge"}
	}
	return out
}
