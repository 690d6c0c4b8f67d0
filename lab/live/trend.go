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

// maxCourseRuns bounds the runs of a course. The latest runs are taken.
const maxCourseRuns = 200

// courses keeps the digests of runs, so that a course reads each run once.
type courses struct {
	mu      sync.Mutex
	digests map[string]cachedDigest // by the runs' names
}

type cachedDigest struct {
	key    string // filesKey of the run
	digest trend.Digest
	err    error
}

// trend answers with the course of an experiment, or with the list of experiments that have a course.
func (s *Server) trend(w http.ResponseWriter, request *http.Request) {
	entries, err := s.runs()
	if err != nil {
		s.errorPage(w, http.StatusInternalServerError, "Trends", "The folder of runs cannot be read: %v.", err)
		return
	}
	query := request.URL.Query()
	name := query.Get("experiment")
	if name == "" {
		s.sheet(w, http.StatusOK, report.Sheet{Title: "Trends", Site: s.site("/trend")}, "trends",
			experimentsWithCourse(entries))
		return
	}
	course, err := s.course(entries, name, trend.Options{Metric: query.Get("metric"), Devices: query["device"],
		By: query.Get("by")})
	var page bytes.Buffer
	if err == nil {
		err = course.HTML(&page, s.site("/trend"), address)
	}
	if err != nil {
		s.errorPage(w, http.StatusUnprocessableEntity, "No course", "%v.", err)
		return
	}
	send(w, http.StatusOK, page.Bytes())
}

// course makes the course of an experiment from its runs that do not go on.
func (s *Server) course(entries []archive.Entry, name string, opts trend.Options) (trend.Trend, error) {
	s.computing.Lock()
	defer s.computing.Unlock()
	var list []trend.Digest
	var errs []error
	for _, entry := range entries {
		if entry.Environment.Experiment != name || entry.State == archive.GoingOn || len(list) == maxCourseRuns {
			continue
		}
		digest, err := s.courses.digestOf(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", entry.Name, err))
			continue
		}
		list = append(list, digest)
	}
	if len(list) == 0 {
		return trend.Trend{}, errors.Join(append(errs, fmt.Errorf("no run of the experiment %q has ended", name))...)
	}
	course, err := trend.TrendOf(list, opts)
	for _, e := range errs {
		course.LeftOut = append(course.LeftOut, trend.Left{Name: "a run", Reason: e.Error()})
	}
	return course, err
}

// digestOf returns the digest of a run. It reads the run again only when its files have changed.
func (c *courses) digestOf(entry archive.Entry) (trend.Digest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := filesKey(entry)
	if d, is := c.digests[entry.Name]; is && d.key == key {
		return d.digest, d.err
	}
	run, _, err := measure.All().Follow(entry.Dir).Read()
	d := cachedDigest{key: key, err: err}
	if err == nil {
		d.digest = trend.DigestOf(entry.Name, run, measure.Summarise(run, analysis.Options{}))
	}
	if c.digests == nil {
		c.digests = map[string]cachedDigest{}
	}
	c.digests[entry.Name] = d
	return d.digest, d.err
}

// experimentLink is the link to an experiment's course, with the number of its runs in words.
type experimentLink struct {
	report.Link
	Runs string
}

// experimentsWithCourse lists the experiments with two runs or more.
func experimentsWithCourse(entries []archive.Entry) (list []experimentLink) {
	runs := map[string]int{}
	for _, entry := range entries {
		if entry.State != archive.GoingOn && entry.State != archive.Damaged {
			runs[entry.Environment.Experiment]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		if runs[name] > 1 && name != "" {
			link := report.Link{Name: name, Address: "/trend?experiment=" + url.QueryEscape(name)}
			list = append(list, experimentLink{link, words.Counted(runs[name], "run")})
		}
	}
	return list
}
