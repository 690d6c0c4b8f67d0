package live

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

// runsPerPage is the number of runs on one page of the list.
const runsPerPage = 100

// listPage is the list of runs for the template "list".
type listPage struct {
	GoingOn []row
	Rows    []row
	Key     string // keyOf the runs

	Experiments        []string // choices of the filter
	States             []archive.State
	Experiment, Search string // the filter's present choice
	State              archive.State
	Found              string // number of runs that match the filter, in words
	Newer, Older       string // addresses of the neighbouring pages; empty: none
	Trends             []report.Link
	Empty              string
}

// row is one run in the list.
type row struct {
	Name, Address, Experiment, Title  string
	Started, StartedAt, Took, Machine string
	CPU, Kernel, Build, Badge         string
	State                             archive.State
	Mark, Fault                       string
	Status                            status
}

// list answers with the list of runs.
func (s *Server) list(w http.ResponseWriter, request *http.Request) {
	entries, err := s.runs()
	if err != nil {
		s.errorPage(w, http.StatusInternalServerError, "Runs", "The folder of runs cannot be read: %v.", err)
		return
	}
	data := listing(entries, request.URL.Query(), time.Now())
	sheet := report.Sheet{Title: "Runs", Subtitle: stateCounts(entries), Site: s.site("/")}
	s.sheet(w, http.StatusOK, sheet, "list", data)
}

// stateCounts returns the number of runs, in total and by state, in words.
func stateCounts(entries []archive.Entry) string {
	number := map[archive.State]int{}
	for _, entry := range entries {
		number[entry.State]++
	}
	text := words.Counted(len(entries), "run")
	for _, state := range states {
		if number[state] > 0 && number[state] < len(entries) {
			text += fmt.Sprintf(" · %d %s", number[state], state)
		}
	}
	return text
}

var states = []archive.State{archive.GoingOn, archive.Finished, archive.Interrupted, archive.BrokenOff, archive.Damaged}

// listing makes the page of the list that the query asks for.
func listing(entries []archive.Entry, query url.Values, now time.Time) listPage {
	data := listPage{
		Experiment: query.Get("experiment"), State: archive.State(query.Get("state")), Search: query.Get("search"),
		States: states, Key: keyOf(entries),
	}
	var found []archive.Entry
	for _, entry := range entries {
		if entry.State == archive.GoingOn {
			data.GoingOn = append(data.GoingOn, rowOf(entry, now))
		}
		if data.matches(entry) {
			found = append(found, entry)
		}
	}
	data.offer(entries)
	first, _ := strconv.Atoi(query.Get("from"))
	first = max(0, min(first, len(found)-1))
	last := min(first+runsPerPage, len(found))
	for _, entry := range found[first:last] {
		data.Rows = append(data.Rows, rowOf(entry, now))
	}
	page := func(from int) string {
		query.Set("from", strconv.Itoa(max(0, from)))
		return "/?" + query.Encode()
	}
	if first > 0 {
		data.Newer = page(first - runsPerPage)
	}
	if last < len(found) {
		data.Older = page(last)
	}
	switch {
	case len(entries) == 0:
		data.Empty = "There is no run yet. A run that is begun appears here by itself: gateweigh run quick"
	case len(found) == 0:
		data.Empty = "No run is like that."
	case len(found) > runsPerPage:
		data.Found = fmt.Sprintf("%d to %d of %s", first+1, last, words.Counted(len(found), "run"))
	case len(found) < len(entries):
		data.Found = words.Counted(len(found), "run") + " of " + strconv.Itoa(len(entries))
	}
	return data
}

// offer fills in the experiments of the filter, and the links to the courses of experiments with several runs.
func (l *listPage) offer(entries []archive.Entry) {
	runs := map[string]int{}
	for _, entry := range entries {
		runs[entry.Environment.Experiment]++
	}
	delete(runs, "")
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		l.Experiments = append(l.Experiments, name)
		if runs[name] > 1 {
			l.Trends = append(l.Trends, report.Link{Name: name, Address: "/trend?experiment=" + url.QueryEscape(name)})
		}
	}
}

// matches reports whether the filter selects a run.
func (l listPage) matches(entry archive.Entry) bool {
	env := entry.Environment
	text := strings.ToLower(strings.Join([]string{entry.Name, env.Experiment, env.Title, env.Kernel, env.CPUModel,
		env.GateweighVersion}, "\n"))
	return (l.Experiment == "" || env.Experiment == l.Experiment) && (l.State == "" || entry.State == l.State) &&
		strings.Contains(text, strings.ToLower(l.Search))
}

func rowOf(entry archive.Entry, now time.Time) row {
	env := entry.Environment
	view := row{
		Name: entry.Name, Address: address(entry.Name), Experiment: words.Or(env.Experiment, "unknown"), Title: env.Title,
		State: entry.State, Badge: badges[entry.State], CPU: env.CPUModel, Mark: env.VM.Mark(), Fault: entry.Fault,
		Status: statusOf(entry, now),
	}
	view.Kernel, view.Build, _ = strings.Cut(env.Kernel, " ")
	if env.CPUs > 0 {
		view.Machine = words.Counted(env.CPUs, "CPU")
	}
	if !env.Start.IsZero() {
		view.Started, view.StartedAt = env.Start.UTC().Format("2 Jan 2006, 15:04"), env.Start.UTC().Format(time.RFC3339)
	}
	if !env.End.IsZero() && env.End.After(env.Start) {
		view.Took = words.Lasting(env.End.Sub(env.Start))
	}
	return view
}

// badges maps states to CSS classes.
var badges = map[archive.State]string{archive.GoingOn: "live", archive.Finished: "equivalent",
	archive.Interrupted: "open", archive.BrokenOff: "fails", archive.Damaged: "fails"}

// address returns the address of a run's page.
func address(name string) string { return "/run?run=" + url.QueryEscape(name) }

// keyOf returns a digest of the names, states and progress of runs.
func keyOf(entries []archive.Entry) string {
	var b strings.Builder
	for _, entry := range entries {
		fmt.Fprintf(&b, "%s %s", entry.Name, entry.State)
		if entry.Progress != nil && entry.State == archive.GoingOn {
			fmt.Fprintf(&b, " %d", entry.Progress.Updated.UnixNano())
		}
		b.WriteByte('\n')
	}
	return digest(b.String())
}
