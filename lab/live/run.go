package live

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// shown is a run's report as it was made last.
type shown struct {
	follower *measure.Follower
	page     []byte
	key      string        // of the files that it was made of
	took     time.Duration // to make
	made     time.Time
	used     time.Time // by a reader
}

// mostShown bounds the reports that are kept.
const mostShown = 12

// shelf has the reports that were asked for last, by the runs' names.
type shelf struct {
	mu    sync.Mutex
	pages map[string]shown
}

func (s *shelf) get(name string) (page shown, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, ok = s.pages[name]
	return page, ok
}

func (s *shelf) put(name string, page shown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[string]shown{}
	}
	if _, is := s.pages[name]; !is && len(s.pages) >= mostShown {
		oldest := name
		for other, p := range s.pages {
			if oldest == name || p.used.Before(s.pages[oldest].used) {
				oldest = other
			}
		}
		delete(s.pages, oldest)
	}
	s.pages[name] = page
}

// files names what a report is made of, as it is now.
func files(e archive.Entry) string {
	text := string(e.State)
	for _, name := range []string{result.TrialsFile, result.EnvironmentFile, result.ExperimentFile} {
		if info, err := os.Stat(filepath.Join(e.Dir, name)); err == nil {
			text += fmt.Sprintf(" %d %d", info.Size(), info.ModTime().UnixNano())
		}
	}
	return digest(text)
}

// busy bounds the share of a CPU that reports of a run that goes on may take: their time, and this many times that.
const busy = 20

// due reports whether the report of a run is to be made anew.
func (s *Server) due(page shown, e archive.Entry) bool {
	return page.page == nil ||
		page.key != files(e) && (e.State != archive.GoingOn || time.Since(page.made) >= max(s.Least, busy*page.took))
}

// run shows a run's report, and how far the run is.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("run")
	e, ok, err := s.entry(name)
	switch {
	case err != nil:
		s.sorry(w, http.StatusInternalServerError, "Run", "The folder of runs cannot be read: %v.", err)
		return
	case !ok:
		s.sorry(w, http.StatusNotFound, "No such run", "There is no run of the name %q in this folder, or it was deleted.",
			name)
		return
	}
	page, err := s.report(e)
	if errors.Is(err, fs.ErrNotExist) {
		s.sorry(w, http.StatusNotFound, "No such run", "The run %q was deleted meanwhile.", name)
		return
	}
	if err != nil {
		s.sorry(w, http.StatusUnprocessableEntity, "This run cannot be read", "%v", err)
		return
	}
	section, err := sectionOf(e)
	if err != nil {
		s.sorry(w, http.StatusInternalServerError, "Run", "%v", err)
		return
	}
	send(w, http.StatusOK, bytes.Replace(page.page, []byte(placeOfStatus), section, 1))
}

// sectionOf is the part of a run's page that says how far it is; empty for a run that has ended.
func sectionOf(e archive.Entry) ([]byte, error) {
	if e.State == archive.Finished {
		return nil, nil
	}
	return statusOf(e, time.Now()).section()
}

// placeOfStatus stands in a report where the status goes, which changes more often.
const placeOfStatus = "<!-- status -->"

// report makes the report of a run, unless the one at hand will do.
func (s *Server) report(e archive.Entry) (shown, error) {
	page, _ := s.shown.get(e.Name)
	if !s.due(page, e) {
		return page, nil
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	if page, _ = s.shown.get(e.Name); !s.due(page, e) { // another reader was first
		return page, nil
	}
	begin, key := time.Now(), files(e)
	if page.follower == nil {
		page.follower = measure.All().Follow(e.Dir)
	}
	run, _, err := page.follower.Read()
	if err != nil {
		return page, err
	}
	live := e.State == archive.GoingOn
	if live { // what is missing is still to come
		run.Environment.Interrupted, run.Unmeasured, run.Unrecorded, run.Torn = false, nil, 0, 0
	}
	summary := measure.Summarise(run, analysis.Options{})
	for _, study := range studies.Beside(summary) {
		summary.Findings = append(summary.Findings, study.Findings...)
	}
	site := s.site("")
	if e.State != archive.Finished {
		if site.Before, err = before(run, summary, e, key); err != nil {
			return page, err
		}
		site.Contents = []report.Entry{{ID: "status", Name: statusOf(e, begin).Word}}
	}
	var b bytes.Buffer
	if err := report.HTMLIn(&b, site, run, summary); err != nil {
		return page, err
	}
	page.page, page.key, page.made = b.Bytes(), key, time.Now()
	page.took, page.used = page.made.Sub(begin), page.made
	s.shown.put(e.Name, page)
	return page, nil
}

// attempt is one of the last records of a run.
type attempt struct {
	When, Where string
	Accepted    bool
	Rejects     []string
}

// lastShown is how many of the last records a page shows.
const lastShown = 6

// before is the part of a page before the report, for a run that has not ended: the status, and the last records.
func before(run result.Run, s analysis.Summary, e archive.Entry, key string) (template.HTML, error) {
	all := result.Attempts(run.Trials, run.MeasureRecords)
	slices.SortStableFunc(all, func(a, b result.Entry) int { return cmp.Compare(b.Start.UnixNano(), a.Start.UnixNano()) })
	var list []attempt
	for _, l := range all[:min(lastShown, len(all))] {
		where := s.Dimensions.Label(l.Cell)
		if l.AA {
			where = "clean against clean, " + s.Dimensions.Label(l.Cell.Without(result.DUT))
		}
		list = append(list, attempt{l.Start.UTC().Format("15:04:05"), where, l.Accepted, l.Rejects})
	}
	rejects, _ := bounded(s.Rejects, lastShown)
	var b bytes.Buffer
	err := forms.ExecuteTemplate(&b, "before", struct {
		Place   template.HTML
		Name    string
		Key     string
		Last    []attempt
		Rejects []analysis.Tally
	}{placeOfStatus, e.Name, key, list, rejects})
	return template.HTML(b.String()), err
}

// bounded is the beginning of a list, and how many more there are.
func bounded[T any](list []T, most int) (kept []T, more int) {
	return list[:min(most, len(list))], max(0, len(list)-most)
}
