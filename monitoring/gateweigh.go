package monitoring

// Gateweigh returns the dashboard of runs and campaigns in a folder that gateweigh serve shows, as JSON for Grafana.
func Gateweigh() ([]byte, error) {
	const ofRun = "{{run}}"
	return page("Runs", "gateweigh", "gateweigh_runs", []row{{"Runs", []panel{
		{title: "Runs that go on", what: "In the folder that is served.", now: true,
			all: []query{{"sum(" + of("gateweigh_runs", `state="going on"`) + ")", "go on"}}},
		{title: "Done", what: "Of the plans of all runs that go on, on average.", unit: "percentunit", now: true,
			all: []query{{"avg(" + of("gateweigh_run_progress_ratio") + ")", "done"}}},
		{title: "Time left", what: "Of the run that ends last, estimated.", unit: "s", now: true,
			all: []query{{"max(" + of("gateweigh_run_time_left_seconds") + ")", "left"}}},
		{title: "Last sign of life", what: "Of the run that has said nothing for longest.", unit: "s", now: true,
			all: []query{{"time() - min(" + of("gateweigh_run_updated_timestamp_seconds") + ")", "ago"}}},
		{title: "Runs by state", what: "In the folder that is served.", all: []query{sum("state", "gateweigh_runs")}},
		{title: "Progress", what: "Share of the plan that is done.", unit: "percentunit",
			all: []query{{of("gateweigh_run_progress_ratio"), ofRun}}},
		{title: "Windows", what: "Windows with an accepted trial, and those of the plan.",
			all: []query{{of("gateweigh_run_windows_accepted"), ofRun + " accepted"},
				{of("gateweigh_run_windows_planned"), ofRun + " planned"}}},
		{title: "Rejected trials", what: "Many: something else takes the machine's CPUs. The run's page says what.",
			all: []query{{of("gateweigh_run_trials_rejected"), ofRun}}},
		{title: "Blocks", what: "Of the plan, by whether they are done.",
			all: []query{{of("gateweigh_run_blocks"), ofRun + " done: {{done}}"}}},
	}}})
}
