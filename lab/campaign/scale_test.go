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

// inMemory makes a folder in memory, if /dev/shm exists. The test removes it at its end.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "campaign")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// plan makes a campaign of so many blocks with ten devices.
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

// simulateAll writes the attempts of all shares, by 100 nodes, into a campaign's folder.
func simulateAll(t testing.TB, opened *campaign.Campaign) {
	t.Helper()
	exp, err := opened.Experiment(0, simulated)
	if err != nil {
		t.Fatal(err)
	}
	blocks := exp.Plan()
	for n, places := range exp.Shares() {
		dir := filepath.Join(opened.Dir, "blocks", exp.Name, fmt.Sprintf("%05d-0", n))
		attempt := campaign.Attempt{Node: fmt.Sprintf("node%d", n%100), Begun: time.Now().UTC()}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		work := campaign.Work{Experiment: exp, Blocks: places, Sitting: n, Node: attempt.Node, Dir: dir}
		end, err := simulate(work, blocks, func() {})
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]any{"attempt.json": attempt, "end.json": end} {
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

// TestLargeCampaignsCostInProportion: planning, surveying and collecting ten times the blocks allocates about ten times
// the memory.
func TestLargeCampaignsCostInProportion(t *testing.T) {
	few, many := allocated(t, 200), allocated(t, 2000)
	for step, bytes := range many {
		if ratio := float64(bytes) / float64(few[step]); ratio > 13 {
			t.Errorf("%s: ten times the blocks allocate %.1f times as much: %d and %d bytes", step, ratio, few[step], bytes)
		}
	}
}

// allocated returns the bytes that each step of a campaign of simulated blocks allocates.
func allocated(t *testing.T, blocks int) map[string]uint64 {
	t.Helper()
	opened := (*campaign.Campaign)(nil)
	dir := inMemory(t)
	total := map[string]uint64{}
	measure := func(step string, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		total[step] = after.TotalAlloc - before.TotalAlloc
	}
	measure("plan", func() { opened = plan(t, filepath.Join(dir, "c"), blocks) })
	simulateAll(t, opened)
	measure("survey", func() {
		if status := survey(t, opened); status.Done != blocks || len(status.Nodes) != 100 {
			t.Fatalf("%d of %d blocks done by %d nodes", status.Done, blocks, len(status.Nodes))
		}
	})
	measure("collect", func() {
		if _, err := opened.Collect(0, filepath.Join(dir, "run"), simulated, writeExperiment); err != nil {
			t.Fatal(err)
		}
	})
	return total
}

// BenchmarkLargeCampaign plans, surveys and collects 10,000 blocks of 100 nodes. It reports the time of each step, and
// the peak memory of the last two. It does not make the run's report, which needs far more memory.
func BenchmarkLargeCampaign(b *testing.B) {
	const blocks = 10_000
	for b.Loop() {
		dir := inMemory(b)
		began := time.Now()
		opened := plan(b, filepath.Join(dir, "c"), blocks)
		planned := time.Since(began)
		simulateAll(b, opened)
		runtime.GC()
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins again
			b.Fatal(err)
		}
		began = time.Now()
		status := survey(b, opened)
		seen := time.Since(began)
		if _, err := opened.Collect(0, filepath.Join(dir, "run"), simulated, writeExperiment); err != nil ||
			status.Done != blocks {
			b.Fatal(err, status.Done)
		}
		b.ReportMetric(planned.Seconds(), "s-to-plan")
		b.ReportMetric(seen.Seconds(), "s-to-survey")
		b.ReportMetric((time.Since(began) - seen).Seconds(), "s-to-collect")
		b.ReportMetric(peak(b), "MiB-peak")
	}
}

// peak returns the process's peak resident memory in MiB.
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
