package live

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/result"
)

// maxMetricRuns bounds the number of runs with time series of their own.
const maxMetricRuns = 50

var (
	runsDesc  = prometheus.NewDesc("gateweigh_runs", "Runs in the folder, by state.", []string{"state"}, nil)
	runLabels = []string{"run", "experiment"}

	progressDesc = prometheus.NewDesc("gateweigh_run_progress_ratio",
		"Share of the plan of a run that goes on that is behind it, 0 to 1.", runLabels, nil)
	timeLeftDesc = prometheus.NewDesc("gateweigh_run_time_left_seconds",
		"Estimate of the time that a run that goes on still takes.", runLabels, nil)
	blocksDesc = prometheus.NewDesc("gateweigh_run_blocks",
		"Blocks of the plan of a run that goes on, by whether they are done.", append([]string{"done"}, runLabels...), nil)
	acceptedDesc = prometheus.NewDesc("gateweigh_run_windows_accepted",
		"Windows with an accepted trial of a run that goes on.", runLabels, nil)
	plannedDesc = prometheus.NewDesc("gateweigh_run_windows_planned",
		"Windows of the plan of a run that goes on.", runLabels, nil)
	rejectedDesc = prometheus.NewDesc("gateweigh_run_trials_rejected",
		"Trials that this sitting of a run that goes on has rejected.", runLabels, nil)
	updatedDesc = prometheus.NewDesc("gateweigh_run_updated_timestamp_seconds",
		"When a run that goes on last said how far it is, seconds since 1970.", runLabels, nil)
)

// metrics answers with the metrics of all runs, in Prometheus' text format.
func (s *Server) metrics(w http.ResponseWriter, request *http.Request) {
	entries, err := s.runs()
	if err != nil {
		http.Error(w, "the folder of runs cannot be read", http.StatusInternalServerError)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(runCollector(entries))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, request)
}

// runCollector makes metrics of runs. It implements prometheus.Collector.
type runCollector []archive.Entry

// Describe sends no descriptions, because the series depend on the runs.
func (runCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (list runCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	number, shown := map[archive.State]int{}, 0
	for _, entry := range list {
		number[entry.State]++
		progress := entry.Progress
		if entry.State != archive.GoingOn || progress == nil || shown == maxMetricRuns {
			continue
		}
		shown++
		name := []string{result.OneLine(entry.Name), result.OneLine(entry.Environment.Experiment)}
		gauge(progressDesc, progress.Done, name...)
		if left, ok := entry.TimeLeft(time.Now()); ok {
			gauge(timeLeftDesc, left.Seconds(), name...)
		}
		gauge(blocksDesc, float64(progress.Behind), append([]string{"yes"}, name...)...)
		gauge(blocksDesc, float64(progress.Blocks-progress.Behind), append([]string{"no"}, name...)...)
		gauge(acceptedDesc, float64(progress.Accepted), name...)
		gauge(plannedDesc, float64(progress.Windows), name...)
		gauge(rejectedDesc, float64(progress.Rejected), name...)
		gauge(updatedDesc, float64(progress.Updated.UnixMilli())/1000, name...)
	}
	for _, state := range states {
		gauge(runsDesc, float64(number[state]), string(state))
	}
}
