package live

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/result"
)

// mostInMetrics bounds the runs that have series of their own.
const mostInMetrics = 50

var (
	runsOf = prometheus.NewDesc("gateweigh_runs", "Runs in the folder, by state.", []string{"state"}, nil)
	ofRun  = []string{"run", "experiment"}

	progressOf = prometheus.NewDesc("gateweigh_run_progress_ratio",
		"Share of the plan of a run that goes on that is behind it, 0 to 1.", ofRun, nil)
	leftOf = prometheus.NewDesc("gateweigh_run_time_left_seconds",
		"Estimate of the time that a run that goes on still takes.", ofRun, nil)
	blocksOf = prometheus.NewDesc("gateweigh_run_blocks",
		"Blocks of the plan of a run that goes on, by whether they are done.", append([]string{"done"}, ofRun...), nil)
	windowsOf = prometheus.NewDesc("gateweigh_run_windows_accepted",
		"Windows with an accepted trial of a run that goes on.", ofRun, nil)
	plannedOf = prometheus.NewDesc("gateweigh_run_windows_planned",
		"Windows of the plan of a run that goes on.", ofRun, nil)
	rejectedOf = prometheus.NewDesc("gateweigh_run_trials_rejected",
		"Trials that this sitting of a run that goes on has rejected.", ofRun, nil)
	heardOf = prometheus.NewDesc("gateweigh_run_updated_timestamp_seconds",
		"When a run that goes on last said how far it is, seconds since 1970.", ofRun, nil)
)

// metrics answers Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	entries, err := s.look()
	if err != nil {
		http.Error(w, "the folder of runs cannot be read", http.StatusInternalServerError)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(seen(entries))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// seen are the runs as metrics.
type seen []archive.Entry

// Describe has no descriptions: which series there are depends on the runs.
func (seen) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (list seen) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	number, shown := map[archive.State]int{}, 0
	for _, e := range list {
		number[e.State]++
		p := e.Progress
		if e.State != archive.GoingOn || p == nil || shown == mostInMetrics {
			continue
		}
		shown++
		name := []string{result.OneLine(e.Name), result.OneLine(e.Environment.Experiment)}
		gauge(progressOf, p.Done, name...)
		if left, ok := e.TimeLeft(time.Now()); ok {
			gauge(leftOf, left.Seconds(), name...)
		}
		gauge(blocksOf, float64(p.Behind), append([]string{"yes"}, name...)...)
		gauge(blocksOf, float64(p.Blocks-p.Behind), append([]string{"no"}, name...)...)
		gauge(windowsOf, float64(p.Accepted), name...)
		gauge(plannedOf, float64(p.Windows), name...)
		gauge(rejectedOf, float64(p.Rejected), name...)
		gauge(heardOf, float64(p.Updated.UnixMilli())/1000, name...)
	}
	for _, state := range states {
		gauge(runsOf, float64(number[state]), string(state))
	}
}
