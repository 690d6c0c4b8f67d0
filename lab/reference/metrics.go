package main

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/result"
)

// example is a run without trials. It has one search, because the metrics of a search come from its goals.
var example = result.Run{MeasureRecords: []result.Entry{
	{Record: &throughput.Search{Goals: []throughput.Goal{{LossRatio: 0}, {LossRatio: 0.005}}}},
}}

// metrics writes the page of all measures' metrics.
func metrics(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Metrics",
		"They are the columns of `summary.csv` and the names in `summary.json` ([data format](../data-format.md)). "+
			"*Of*: whose figure it is; nothing: the whole lab's. *Sample*: what one value is of. "+
			"*Better*: less or more, where one is."))
	for _, t := range measure.All() {
		fmt.Fprintf(&b, "## `measure = %q`\n\n"+
			"| Metric | Unit | Of | Sample | Better | Meaning |\n|---|---|---|---|---|---|\n",
			t.Rules().Name)
		for _, m := range t.Summarise(example, analysis.Options{AllMetrics: true}).Metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Name, m.Unit, m.Host, m.Per, m.Better, cell(meaning(m)))
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String()) + "\n", nil
}

// meaning describes a metric and how it is compared.
func meaning(m analysis.Metric) string {
	text := m.Text
	switch {
	case m.Against != analysis.NotCompared:
		text += fmt.Sprintf("; device against clean router by %s", m.Against)
	case m.Both:
		text += "; also the clean router's"
	}
	return strings.TrimPrefix(text, "; ")
}
