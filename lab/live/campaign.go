package live

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

// campaigns lists the campaigns right below the folder of runs, by name, and that folder itself.
func (s *Server) campaigns() (names []string) {
	if campaign.IsCampaign(s.Dir) {
		return []string{"."}
	}
	below, _ := os.ReadDir(s.Dir) // the list of runs says what is wrong
	for _, d := range below {
		if !strings.HasPrefix(d.Name(), ".") && campaign.IsCampaign(filepath.Join(s.Dir, d.Name())) {
			names = append(names, d.Name())
		}
	}
	return names
}

// spread is a campaign as the template lays it out.
type spread struct {
	campaign.Status
	Name, Fault, Experiments string
	Percent                  int
	Known                    bool
}

// campaign shows the campaigns of the folder, or one with its nodes.
func (s *Server) campaign(w http.ResponseWriter, r *http.Request) {
	names := s.campaigns()
	title := "Campaigns"
	if chosen := r.URL.Query().Get("campaign"); chosen != "" {
		if !slices.Contains(names, chosen) {
			s.sorry(w, http.StatusNotFound, "No such campaign", "There is no campaign of the name %q in this folder.", chosen)
			return
		}
		names, title = []string{chosen}, "Campaign "+chosen
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	var list []spread
	for _, name := range names {
		list = append(list, s.spread(name))
	}
	s.sheet(w, http.StatusOK, report.Sheet{Title: title, Site: s.site("/campaign")}, "campaigns", list)
}

// spread reads a campaign's folder.
func (s *Server) spread(name string) spread {
	one := spread{Name: name}
	c, err := campaign.Open(filepath.Join(s.Dir, name))
	if err == nil {
		one.Status, err = c.Look()
	}
	if err != nil {
		one.Fault = err.Error()
		return one
	}
	var parts []string
	for _, p := range c.Parts {
		parts = append(parts, p.Name+" ("+words.Counted(p.Blocks, "block")+")")
	}
	one.Experiments, one.Known = words.Listed(parts), one.Shares > 0
	one.Percent = 100 * one.Done / max(1, one.Shares)
	return one
}
