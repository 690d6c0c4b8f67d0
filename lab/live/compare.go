package live

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

// compare answers with the comparison of two runs. The earlier run is first, unless the query has "as=given".
func (s *Server) compare(w http.ResponseWriter, request *http.Request) {
	names := request.URL.Query()["run"]
	if len(names) != 2 || names[0] == names[1] {
		s.errorPage(w, http.StatusBadRequest, "Compare two runs", "Choose two runs in the list; %s chosen.",
			words.Agreed(len(names), "was", "were"))
		return
	}
	var two []archive.Entry
	for _, name := range names {
		entry, ok, err := s.entry(name)
		if err != nil || !ok {
			s.errorPage(w, http.StatusNotFound, "No such run", "There is no run of the name %q in this folder.", name)
			return
		}
		two = append(two, entry)
	}
	if request.URL.Query().Get("as") != "given" && two[1].Environment.Start.Before(two[0].Environment.Start) {
		two[0], two[1] = two[1], two[0]
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	var inputs []compare.Input
	for _, entry := range two {
		run, _, err := measure.All().Follow(entry.Dir).Read()
		if err != nil {
			s.errorPage(w, http.StatusUnprocessableEntity, "This run cannot be read", "%v", err)
			return
		}
		inputs = append(inputs, compare.Input{Name: entry.Name, Run: run})
	}
	comparison := compare.Runs(inputs[0], inputs[1], compare.Defaults())
	var body bytes.Buffer
	if err := compare.Sections(&body, []compare.Comparison{comparison}, address); err != nil {
		s.errorPage(w, http.StatusInternalServerError, "Compare two runs", "%v", err)
		return
	}
	other := url.Values{"run": {two[1].Name, two[0].Name}, "as": {"given"}}
	sheet := report.Sheet{Title: words.Or(comparison.B.Experiment, "Runs") + ", compared", Site: s.site(""),
		Subtitle: "The second run, B, beside the first, A"}
	s.sheet(w, http.StatusOK, sheet, "compared", struct {
		Sections template.HTML
		Swapped  string
	}{template.HTML(body.String()), "/compare?" + other.Encode()})
}
