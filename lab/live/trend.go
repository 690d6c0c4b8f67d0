package live

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/trend"
	"github.com/gateweigh/gateweigh/lab/words"
)

// mostInCourse bounds the runs of a course: the latest.
const mostInCourse = 200

// courses keeps the digests of runs, so that a course reads each run once.
type courses struct {
	mu      sync.Mutex
	digests map[string]digested // by name
}

type digested struct {
	key    string // of the files
	digest trend.Digest
	err    error
}

// trend shows the course of an experiment, or which experiments have one.
func (s *Server) trend(w http.ResponseWriter, r *http.Request) {
	entries, err := s.look()
	if err != nil {
		s.sorry(w, http.StatusInternalServerError, "Trends", "The folder of runs cannot be read: %v.", err)
		return
	}
	query := r.URL.Query()
	name := query.Get("experiment")
	if name == "" {
		s.sheet(w, http.StatusOK, report.Sheet{Title: "Trends", Site: s.site("/trend")}, "trends", withCourse(entries))
		return
	}
	t, err := s.course(entries, name, trend.Options{Metric: query.Get("metric"), Devices: query["device"],
		By: query.Get("by")})
	var page bytes.Buffer
	if err == nil {
		err = t.HTML(&page, s.site("/trend"), address)
	}
	if err != nil {
		s.sorry(w, http.StatusUnprocessableEntity, "No course", "%v.", err)
		return
	}
	send(w, http.StatusOK, page.Bytes())
}

// course reads the runs of an experiment that have ended, or are going on with something to show.
func (s *Server) course(entries []archive.Entry, name string, opts trend.Options) (trend.Trend, error) {
	s.computing.Lock()
	defer s.computing.Unlock()
	var list []trend.Digest
	var errs []error
	for _, e := range entries {
		if e.Environment.Experiment != name || e.State == archive.GoingOn || len(list) == mostInCourse {
			continue
		}
		d, err := s.courses.of(e)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name, err))
			continue
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return trend.Trend{}, errors.Join(append(errs, fmt.Errorf("no run of the experiment %q has ended", name))...)
	}
	t, err := trend.TrendOf(list, opts)
	for _, e := range errs {
		t.LeftOut = append(t.LeftOut, trend.Left{Name: "a run", Reason: e.Error()})
	}
	return t, err
}

// of is the digest of a run, read again only when its files have changed.
func (c *courses) of(e archive.Entry) (trend.Digest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := files(e)
	if d, is := c.digests[e.Name]; is && d.key == key {
		return d.digest, d.err
	}
	run, _, err := measure.All().Follow(e.Dir).Read()
	d := digested{key: key, err: err}
	if err == nil {
		d.digest = trend.DigestOf(e.Name, run, measure.Summarise(run, analysis.Options{}))
	}
	if c.digests == nil {
		c.digests = map[string]digested{}
	}
	c.digests[e.Name] = d
	return d.digest, d.err
}

// counted is an experiment with the number of its runs.
type counted struct {
	report.Link
	Runs string
}

// withCourse are the experiments with two runs or more.
func withCourse(entries []archive.Entry) (list []counted) {
	runs := map[string]int{}
	for _, e := range entries {
		if e.State != archive.GoingOn && e.State != archive.Damaged {
			runs[e.Environment.Experiment]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		if runs[name] > 1 && name != "" {
			link := report.Link{Name: name, Address: "/trend?experiment=" + url.QueryEscape(name)}
			list = append(list, counted{link, words.Counted(runs[name], "run")})
		}
	}
	return list
}
