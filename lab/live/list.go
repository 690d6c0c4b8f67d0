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

// perPage is how many runs the list shows at a time.
const perPage = 100

// listed is the list of runs as the template lays it out.
type listed struct {
	GoingOn []row
	Rows    []row
	Key     string // changes with what is shown

	Experiments        []string // to choose from
	States             []archive.State
	Experiment, Search string // chosen
	State              archive.State
	Found              string
	Newer, Older       string // addresses; empty: none
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

// list shows the runs.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	entries, err := s.look()
	if err != nil {
		s.sorry(w, http.StatusInternalServerError, "Runs", "The folder of runs cannot be read: %v.", err)
		return
	}
	data := listing(entries, r.URL.Query(), time.Now())
	sheet := report.Sheet{Title: "Runs", Subtitle: counts(entries), Site: s.site("/")}
	s.sheet(w, http.StatusOK, sheet, "list", data)
}

// counts says how many runs there are in which states.
func counts(entries []archive.Entry) string {
	number := map[archive.State]int{}
	for _, e := range entries {
		number[e.State]++
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

// listing lays out what the address asks for.
func listing(entries []archive.Entry, query url.Values, now time.Time) listed {
	l := listed{
		Experiment: query.Get("experiment"), State: archive.State(query.Get("state")), Search: query.Get("search"),
		States: states, Key: keyOf(entries),
	}
	var found []archive.Entry
	for _, e := range entries {
		if e.State == archive.GoingOn {
			l.GoingOn = append(l.GoingOn, rowOf(e, now))
		}
		if l.matches(e) {
			found = append(found, e)
		}
	}
	l.offer(entries)
	first, _ := strconv.Atoi(query.Get("from"))
	first = max(0, min(first, len(found)-1))
	last := min(first+perPage, len(found))
	for _, e := range found[first:last] {
		l.Rows = append(l.Rows, rowOf(e, now))
	}
	page := func(from int) string {
		query.Set("from", strconv.Itoa(max(0, from)))
		return "/?" + query.Encode()
	}
	if first > 0 {
		l.Newer = page(first - perPage)
	}
	if last < len(found) {
		l.Older = page(last)
	}
	switch {
	case len(entries) == 0:
		l.Empty = "There is no run yet. A run that is begun appears here by itself: gateweigh run quick"
	case len(found) == 0:
		l.Empty = "No run is like that."
	case len(found) > perPage:
		l.Found = fmt.Sprintf("%d to %d of %s", first+1, last, words.Counted(len(found), "run"))
	case len(found) < len(entries):
		l.Found = words.Counted(len(found), "run") + " of " + strconv.Itoa(len(entries))
	}
	return l
}

// offer lists the experiments to choose from, and those of several runs.
func (l *listed) offer(entries []archive.Entry) {
	runs := map[string]int{}
	for _, e := range entries {
		runs[e.Environment.Experiment]++
	}
	delete(runs, "")
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		l.Experiments = append(l.Experiments, name)
		if runs[name] > 1 {
			l.Trends = append(l.Trends, report.Link{Name: name, Address: "/trend?experiment=" + url.QueryEscape(name)})
		}
	}
}

// matches reports whether a run is among those that were asked for.
func (l listed) matches(e archive.Entry) bool {
	env := e.Environment
	text := strings.ToLower(strings.Join([]string{e.Name, env.Experiment, env.Title, env.Kernel, env.CPUModel,
		env.GateweighVersion}, "\n"))
	return (l.Experiment == "" || env.Experiment == l.Experiment) && (l.State == "" || e.State == l.State) &&
		strings.Contains(text, strings.ToLower(l.Search))
}

func rowOf(e archive.Entry, now time.Time) row {
	env := e.Environment
	r := row{
		Name: e.Name, Address: address(e.Name), Experiment: words.Or(env.Experiment, "unknown"), Title: env.Title,
		State: e.State, Badge: badges[e.State], CPU: env.CPUModel, Mark: env.VM.Mark(), Fault: e.Fault,
		Status: statusOf(e, now),
	}
	r.Kernel, r.Build, _ = strings.Cut(env.Kernel, " ")
	if env.CPUs > 0 {
		r.Machine = words.Counted(env.CPUs, "CPU")
	}
	if !env.Start.IsZero() {
		r.Started, r.StartedAt = env.Start.UTC().Format("2 Jan 2006, 15:04"), env.Start.UTC().Format(time.RFC3339)
	}
	if !env.End.IsZero() && env.End.After(env.Start) {
		r.Took = words.Lasting(env.End.Sub(env.Start))
	}
	return r
}

// badges are the classes of states.
var badges = map[archive.State]string{archive.GoingOn: "live", archive.Finished: "equivalent",
	archive.Interrupted: "open", archive.BrokenOff: "fails", archive.Damaged: "fails"}

// address is where a run's page is.
func address(name string) string { return "/run?run=" + url.QueryEscape(name) }

// keyOf changes whenever a list of runs does.
func keyOf(entries []archive.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s", e.Name, e.State)
		if e.Progress != nil && e.State == archive.GoingOn {
			fmt.Fprintf(&b, " %d", e.Progress.Updated.UnixNano())
		}
		b.WriteByte('\n')
	}
	return digest(b.String())
}
