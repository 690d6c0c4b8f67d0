// Tests of the answers to the questions of studies in a report. simulate makes a run from a description such as
// portalSpec or single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
)

// mechanismsRun describes a simulated run of three devices with 1 to 100 clients at a load in Mbit/s. At the study's
// load, 1000 Mbit/s, two of the devices are at their limit.
func mechanismsRun(offered float64) analysistest.Spec {
	spec := portalSpec()
	spec.Clients, spec.Offered = []int{1, 10, 50, 100}, []float64{offered}
	spec.DUTs = []analysistest.DUT{
		{Name: "gateway-ebpf", Ratio: 0.8}, {Name: "gateway-nfqueue", Ratio: 8, MaxMbps: 500},
		{Name: "gateway-tun", Ratio: 5, MaxMbps: 600},
	}
	return spec
}

// TestStudyQuestionsLinkToFindings: the study's part of the page begins with a table of the study's questions. Each
// answer for a device is a link to the finding from which it follows.
func TestStudyQuestionsLinkToFindings(t *testing.T) {
	dir := t.TempDir()
	if err := analysistest.Write(dir, simulate(mechanismsRun(1000))); err != nil {
		t.Fatal(err)
	}
	light := measure.Summarise(simulate(mechanismsRun(300)), analysis.Options{})
	if _, err := report.WriteWith(dir, report.Options{With: []analysis.Summary{light}}); err != nil {
		t.Fatal(err)
	}
	page := string(readFile(t, dir, report.HTMLFile))
	checkPage(t, page)
	_, study, _ := strings.Cut(page, `<h2 id="study">`)
	head, rest, found := strings.Cut(study, `<h3>Figures</h3>`)
	if !found || !strings.Contains(head, `<table class="answers">`) || !strings.Contains(rest, `id="table-5.5"`) {
		t.Fatalf("the study's part begins with: %.200s", study)
	}
	for _, want := range []string{
		`<th scope="row">gateway-tun</th><td class="text" data-question="More than double the CPU?"><a href="#finding-portals-double-cpu-with-any-clients.gateway-tun" class="badge holds">yes</a>`,
		`<a href="#finding-portals-converge.gateway-tun-gateway-nfqueue" class="badge fails">no</a>`,
		"gateway-tun over gateway-nfqueue; 1 and 100 clients, 300\u00a0Mbit/s",
		`<a href="#finding-bandwidth-dominates" class="badge untested">not tested</a>`,
		`data-question="Do TUN and NFQUEUE converge?">–</td>`,
	} {
		if !strings.Contains(head, want) {
			t.Errorf("the table has no %q in\n%s", want, head)
		}
	}
	links := regexp.MustCompile(`href="#(finding-[^"]*)"`).FindAllStringSubmatch(head, -1)
	if len(links) != 11 { // three devices and four questions, but one question does not concern eBPF
		t.Errorf("%d links", len(links))
	}
	for _, link := range links {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("%s leads nowhere", link[1])
		}
	}
}
