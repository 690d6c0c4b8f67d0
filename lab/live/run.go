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

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// madeReport is the last report of a run that was made.
type madeReport struct {
	follower *measure.Follower
	page     []byte
	key      string        // filesKey of the run at that time
	took     time.Duration // the CPU time that making it took
	made     time.Time
}

// maxReports bounds the number of cached reports.
const maxReports = 12

// reportCache has the last reports that were made, by the runs' names.
type reportCache struct {
	mu    sync.Mutex
	pages map[string]madeReport
}

func (s *reportCache) get(name string) (page madeReport, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, ok = s.pages[name]
	return page, ok
}

func (s *reportCache) put(name string, page madeReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[string]madeReport{}
	}
	if _, is := s.pages[name]; !is && len(s.pages) >= maxReports {
		oldest := name
		for other, report := range s.pages {
			if oldest == name || report.made.Before(s.pages[oldest].made) {
				oldest = other
			}
		}
		delete(s.pages, oldest)
	}
	s.pages[name] = page
}

// filesKey returns a digest of a run's state and of the sizes and times of the files from which its report is made.
func filesKey(entry archive.Entry) string {
	text := string(entry.State)
	for _, name := range []string{result.TrialsFile, result.EnvironmentFile, result.ExperimentFile} {
		if info, err := os.Stat(filepath.Join(entry.Dir, name)); err == nil {
			text += fmt.Sprintf(" %d %d", info.Size(), info.ModTime().UnixNano())
		}
	}
	return digest(text)
}

// idleFactor bounds the CPU time for reports of a run that goes on: between two reports at least idleFactor times the
// CPU time pass that the first one took. Time in which other programs have the CPU does not count: where they leave it
// little, a report takes many seconds, and the next one would come after the run's end.
const idleFactor = 20

// due reports whether a new report of the run must be made.
func (s *Server) due(page madeReport, entry archive.Entry) bool {
	return page.page == nil ||
		page.key != filesKey(entry) &&
			(entry.State != archive.GoingOn || time.Since(page.made) >= max(s.ReportInterval, idleFactor*page.took))
}

// run answers with a run's report and its status.
func (s *Server) run(w http.ResponseWriter, request *http.Request) {
	name := request.URL.Query().Get("run")
	entry, ok, err := s.entry(name)
	switch {
	case err != nil:
		s.errorPage(w, http.StatusInternalServerError, "Run", "The folder of runs cannot be read: %v.", err)
		return
	case !ok:
		s.errorPage(w, http.StatusNotFound, "No such run",
			"There is no run of the name %q in this folder, or it was deleted.",
			name)
		return
	}
	page, err := s.report(entry)
	if errors.Is(err, fs.ErrNotExist) {
		s.errorPage(w, http.StatusNotFound, "No such run", "The run %q was deleted meanwhile.", name)
		return
	}
	if err != nil {
		s.errorPage(w, http.StatusUnprocessableEntity, "This run cannot be read", "%v", err)
		return
	}
	section, err := sectionOf(entry)
	if err != nil {
		s.errorPage(w, http.StatusInternalServerError, "Run", "%v", err)
		return
	}
	send(w, http.StatusOK, bytes.Replace(page.page, []byte(statusPlaceholder), section, 1))
}

// sectionOf returns the HTML of a run's status; empty for a finished run.
func sectionOf(entry archive.Entry) ([]byte, error) {
	if entry.State == archive.Finished {
		return nil, nil
	}
	return statusOf(entry, time.Now()).section()
}

// statusPlaceholder stands in a cached report for the status, which changes more often than the report.
const statusPlaceholder = "<!-- status -->"

// report returns the cached report of a run, or makes a new one when it is due.
func (s *Server) report(entry archive.Entry) (madeReport, error) {
	page, _ := s.reports.get(entry.Name)
	if !s.due(page, entry) {
		return page, nil
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	if page, _ = s.reports.get(entry.Name); !s.due(page, entry) { // another request has made it meanwhile
		return page, nil
	}
	begin, used, key := time.Now(), cpuTime(), filesKey(entry)
	if page.follower == nil {
		page.follower = measure.All().Follow(entry.Dir)
	}
	run, _, err := page.follower.Read()
	if err != nil {
		return page, err
	}
	live := entry.State == archive.GoingOn
	if live { // the missing records are still to come
		run.Environment.Interrupted, run.Unmeasured, run.Unrecorded, run.Torn = false, nil, 0, 0
	}
	summary := measure.Summarise(run, analysis.Options{})
	for _, study := range studies.Beside(summary) {
		summary.Findings = append(summary.Findings, study.Findings...)
	}
	site := s.site("")
	if entry.State != archive.Finished {
		if site.Before, err = before(run, summary, entry, key); err != nil {
			return page, err
		}
		site.Contents = []report.Entry{{ID: "status", Name: statusOf(entry, begin).Word}}
	}
	var b bytes.Buffer
	if err := report.HTMLIn(&b, site, run, summary); err != nil {
		return page, err
	}
	page.page, page.key, page.made, page.took = b.Bytes(), key, time.Now(), cpuTime()-used
	s.reports.put(entry.Name, page)
	return page, nil
}

// cpuTime returns the CPU time that this process has used. What other requests use meanwhile counts too.
func cpuTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used) // cannot fail
	return time.Duration(used.Nano())
}

// recordRow is a row of the table of a run's last records.
type recordRow struct {
	When, Where string
	Accepted    bool
	Rejects     []string
}

// shownRecords is the number of last records on a run's page.
const shownRecords = 6

// before returns the HTML before the report of a run that has not ended: the placeholder of the status, and the last
// records. key is the run's filesKey.
func before(run result.Run, summary analysis.Summary, entry archive.Entry, key string) (template.HTML, error) {
	all := result.Attempts(run.Trials, run.MeasureRecords)
	slices.SortStableFunc(all, func(a, b result.Entry) int { return cmp.Compare(b.Start.UnixNano(), a.Start.UnixNano()) })
	var list []recordRow
	for _, record := range all[:min(shownRecords, len(all))] {
		where := summary.Dimensions.Label(record.Cell)
		if record.AA {
			where = "clean against clean, " + summary.Dimensions.Label(record.Cell.Without(result.DUT))
		}
		list = append(list, recordRow{record.Start.UTC().Format("15:04:05"), where, record.Accepted, record.Rejects})
	}
	rejects, _ := firstOf(summary.Rejects, shownRecords)
	var b bytes.Buffer
	err := forms.ExecuteTemplate(&b, "before", struct {
		Place   template.HTML
		Name    string
		Key     string
		Last    []recordRow
		Rejects []analysis.Tally
	}{statusPlaceholder, entry.Name, key, list, rejects})
	return template.HTML(b.String()), err
}

// firstOf returns the first elements of a list, most at the most, and the number of the others.
func firstOf[T any](list []T, most int) (kept []T, more int) {
	return list[:min(most, len(list))], max(0, len(list)-most)
}
