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

// campaigns lists the names of the campaigns directly below the folder of runs; "." when the folder itself is a
// campaign.
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

// campaignView is a campaign for the template "campaigns".
type campaignView struct {
	campaign.Status
	Name, Fault, Experiments string
	Percent                  int
	Known                    bool
}

// campaign answers with all campaigns of the folder, or with the one that the query names.
func (s *Server) campaign(w http.ResponseWriter, request *http.Request) {
	names := s.campaigns()
	title := "Campaigns"
	if chosen := request.URL.Query().Get("campaign"); chosen != "" {
		if !slices.Contains(names, chosen) {
			s.errorPage(w, http.StatusNotFound, "No such campaign", "There is no campaign of the name %q in this folder.",
				chosen)
			return
		}
		names, title = []string{chosen}, "Campaign "+chosen
	}
	s.computing.Lock()
	defer s.computing.Unlock()
	var list []campaignView
	for _, name := range names {
		list = append(list, s.campaignView(name))
	}
	s.sheet(w, http.StatusOK, report.Sheet{Title: title, Site: s.site("/campaign")}, "campaigns", list)
}

// campaignView reads the folder of a campaign.
func (s *Server) campaignView(name string) campaignView {
	one := campaignView{Name: name}
	opened, err := campaign.Open(filepath.Join(s.Dir, name))
	if err == nil {
		one.Status, err = opened.Look()
	}
	if err != nil {
		one.Fault = err.Error()
		return one
	}
	var parts []string
	for _, p := range opened.Parts {
		parts = append(parts, p.Name+" ("+words.Counted(p.Blocks, "block")+")")
	}
	one.Experiments, one.Known = words.Listed(parts), one.Shares > 0
	one.Percent = 100 * one.Done / max(1, one.Shares)
	return one
}
