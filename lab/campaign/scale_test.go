package campaign_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// inMemory is a folder whose files need no disk, which ends with the test.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "campaign")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// plan makes a campaign of so many blocks, of ten devices.
func plan(t testing.TB, dir string, blocks int) *campaign.Campaign {
	t.Helper()
	var devices []string
	for n := range 10 {
		devices = append(devices, fmt.Sprintf("%q", fmt.Sprintf("device%d", n)))
	}
	text := fmt.Sprintf("duts = [%s]\nclients = [1]\nblocks = %d\naa_blocks = 0\nwindows = 2\n",
		strings.Join(devices, ", "), blocks/len(devices))
	return create(t, campaign.New{Dir: dir, Experiments: []*experiment.Experiment{parse(t, "tiny", text)}, Local: 1})
}

// carryAll has simulated blocks of 100 nodes in a campaign's folder.
func carryAll(t testing.TB, c *campaign.Campaign) {
	t.Helper()
	e, err := c.Experiment(0, simulated)
	if err != nil {
		t.Fatal(err)
	}
	blocks := e.Plan()
	for n, places := range e.Shares() {
		dir := filepath.Join(c.Dir, "blocks", e.Name, fmt.Sprintf("%05d-0", n))
		a := campaign.Attempt{Node: fmt.Sprintf("node%d", n%100), Begun: time.Now().UTC()}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		w := campaign.Work{Experiment: e, Blocks: places, Sitting: n, Node: a.Node, Dir: dir}
		end, err := simulate(w, blocks, func() {})
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]any{"attempt.json": a, "end.json": end} {
			text, err := json.Marshal(v)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLargeCampaignsCostInProportion: planning, looking at and collecting ten times the blocks allocates ten times the
// memory at most.
func TestLargeCampaignsCostInProportion(t *testing.T) {
	few, many := allocated(t, 200), allocated(t, 2000)
	for step, bytes := range many {
		if ratio := float64(bytes) / float64(few[step]); ratio > 13 {
			t.Errorf("%s: ten times the blocks allocate %.1f times as much: %d and %d bytes", step, ratio, few[step], bytes)
		}
	}
}

// allocated is how many bytes each step of a campaign of simulated blocks allocates.
func allocated(t *testing.T, blocks int) map[string]uint64 {
	t.Helper()
	c := (*campaign.Campaign)(nil)
	dir := inMemory(t)
	total := map[string]uint64{}
	measure := func(step string, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		total[step] = after.TotalAlloc - before.TotalAlloc
	}
	measure("plan", func() { c = plan(t, filepath.Join(dir, "c"), blocks) })
	carryAll(t, c)
	measure("survey", func() {
		if s := survey(t, c); s.Done != blocks || len(s.Nodes) != 100 {
			t.Fatalf("%d of %d blocks done by %d nodes", s.Done, blocks, len(s.Nodes))
		}
	})
	measure("collect", func() {
		if _, err := c.Collect(0, filepath.Join(dir, "run"), simulated, writeExperiment); err != nil {
			t.Fatal(err)
		}
	})
	return total
}

// BenchmarkLargeCampaign plans, looks at and collects 10,000 blocks of 100 nodes, and says how long that takes and the
// most memory that the last two need. The report of the run, which needs far more, is not in it.
func BenchmarkLargeCampaign(b *testing.B) {
	const blocks = 10_000
	for b.Loop() {
		dir := inMemory(b)
		began := time.Now()
		c := plan(b, filepath.Join(dir, "c"), blocks)
		planned := time.Since(began)
		carryAll(b, c)
		runtime.GC()
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins again
			b.Fatal(err)
		}
		began = time.Now()
		s := survey(b, c)
		seen := time.Since(began)
		if _, err := c.Collect(0, filepath.Join(dir, "run"), simulated, writeExperiment); err != nil || s.Done != blocks {
			b.Fatal(err, s.Done)
		}
		b.ReportMetric(planned.Seconds(), "s-to-plan")
		b.ReportMetric(seen.Seconds(), "s-to-survey")
		b.ReportMetric((time.Since(began) - seen).Seconds(), "s-to-collect")
		b.ReportMetric(peak(b), "MiB-peak")
	}
}

// peak is the most memory the process had, in MiB.
func peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
