package failover

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Names of metrics.
const (
	OutageMs    = "outage_ms"
	OutageMaxMs = "outage_max_ms"
	SilenceMs   = "silence_max_ms"
	AgainPct    = "log_in_again_pct"
	TCPLostPct  = "tcp_lost_pct"
	LoginsLost  = "logins_failed"
	LoginsMs    = "logins_work_ms"
	AcctLost    = "accounting_lost"
	AcctDoubled = "accounting_doubled"
	AcctPct     = "accounted_pct"
)

// Metrics lists the metrics of a cell. Each is computed from one fault, and a cell shows their mean.
var Metrics = append(PerWindow(
	analysis.Metric{Name: OutageMs, Short: "outage", Unit: "ms",
		Text: "longest time without packets of a client, the median client", Better: analysis.Less, Range: analysis.Amounts,
		Value: analysis.Field("outage_p50")},
	analysis.Metric{Name: OutageMaxMs, Short: "worst", Unit: "ms", Text: "the same, the worst client",
		Better: analysis.Less, Range: analysis.Amounts, Value: analysis.Field("outage_max")},
	analysis.Metric{Name: SilenceMs, Unit: "ms",
		Text:   "longest time between two arrivals, the worst client: packets that were only late are in it",
		Better: analysis.Less, Range: analysis.Amounts, Value: analysis.Field("silent_max")},
	analysis.Metric{Name: AgainPct, Short: "log in again", Unit: "%",
		Text: "admitted clients without packets until the end: they must log in again", Better: analysis.Less,
		Range: analysis.Percents, Value: SharePct("not_back", "clients")},
	analysis.Metric{Name: TCPLostPct, Short: "TCP lost", Unit: "%",
		Text: "TCP connections that were reset, ended, or had no answers at the end", Better: analysis.Less,
		Range: analysis.Percents, Value: SharePct("tcp_lost", "tcp_asked")},
	analysis.Metric{Name: LoginsLost, Short: "failed logins", Unit: "logins",
		Text: "people who came and were not in within 5 s", Better: analysis.Less, Range: analysis.Amounts,
		Value: analysis.Field("logins.failed")},
	analysis.Metric{Name: LoginsMs, Short: "logins work", Unit: "ms", Text: "until new logins worked",
		Better: analysis.Less, Range: analysis.Amounts, Value: func(r analysis.MetricInput) float64 {
			if work := known(r, "logins.work_ms"); work >= 0 {
				return work
			}
			return math.NaN()
		}}), AccountMetrics...)

// AccountMetrics are those of records with Accounts.
var AccountMetrics = PerWindow(
	analysis.Metric{Name: AcctLost, Short: "not told", Unit: "records",
		Text: "Starts and Stops that the RADIUS server was not told", Better: analysis.Less, Range: analysis.Amounts,
		Value: sum("accounts.no_start", "accounts.no_stop")},
	analysis.Metric{Name: AcctDoubled, Short: "told twice", Unit: "records",
		Text: "Starts and Stops that it was told twice", Better: analysis.Less, Range: analysis.Amounts,
		Value: sum("accounts.twice_started", "accounts.twice_stopped")},
	analysis.Metric{Name: AcctPct, Short: "accounted", Unit: "%",
		Text: "bytes of which it was told, of those that passed as IP packets", Range: analysis.Amounts, Value: accountedPct},
)

// PerWindow sets Per of all metrics to analysis.PerWindow.
func PerWindow(list ...analysis.Metric) []analysis.Metric {
	for i := range list {
		list[i].Per = analysis.PerWindow
	}
	return list
}

// known returns a value; NaN where the record has none.
func known(r analysis.MetricInput, name string) float64 {
	if v, is := r.Values[name]; is {
		return v
	}
	return math.NaN()
}

// SharePct returns a function that divides two counts, %.
func SharePct(part, all string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 { return 100 * analysis.Over(r.Get(part), r.Get(all)) }
}

// sum returns a function that adds counts up; NaN where the record has none.
func sum(names ...string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) (n float64) {
		for _, name := range names {
			n += known(r, name)
		}
		return n
	}
}
