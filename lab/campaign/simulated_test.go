package campaign_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// simulated has one measure, which measures nothing: its figures follow from the block alone.
var simulated = experiment.Catalogue{Measures: []experiment.Measure{{
	Name: "simulated",
	Settings: func(e *experiment.Experiment) []experiment.Setting {
		cell := result.NewCell(result.Clients, 1, result.Profile, result.PerPacket, result.Direction, result.Up)
		return []experiment.Setting{{Cell: cell, Cells: []result.Cell{cell.With(result.OfferedMbps, 10)}}}
	},
	Duration: func(_ *experiment.Experiment, g experiment.Group) time.Duration {
		return time.Duration(g.Blocks) * time.Second
	},
}}}

// holdFile holds blocks that began, while it is in the folder of their campaign, but those with goFile in their own.
const (
	holdFile = "hold"
	goFile   = "go"
	lengthMs = "GATEWEIGH_SIMULATED_MS" // of a block; 0: none
)

// TestMain is also the program that jobs run: "campaign block DIR …".
func TestMain(m *testing.M) {
	if len(os.Args) < 4 || os.Args[1] != "campaign" {
		os.Exit(m.Run())
	}
	set := flag.NewFlagSet("block", flag.ExitOnError)
	submission, task := set.Int("submission", -1, ""), set.Int("task", -1, "")
	part, number := set.Int("part", 0, ""), set.Int("share", 0, "")
	node := set.String("node", os.Getenv("SLURMD_NODENAME"), "")
	set.Parse(os.Args[4:])
	if err := carry(os.Args[3], *submission, *task, campaign.Share{Part: *part, Number: *number}, *node); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func carry(dir string, submission, task int, share campaign.Share, node string) error {
	c, err := campaign.Open(dir)
	if err == nil && submission >= 0 {
		share, err = c.Task(submission, task)
	}
	if err != nil {
		return err
	}
	a := campaign.Attempt{Node: node, PID: os.Getpid(), Begun: time.Now().UTC()}
	return c.Carry(context.Background(), share, simulated, a,
		func(_ context.Context, w campaign.Work) (campaign.End, error) {
			return simulate(w, w.Experiment.Plan(), func() {
				ms, _ := time.ParseDuration(os.Getenv(lengthMs) + "ms")
				time.Sleep(ms)
				for exists(filepath.Join(dir, holdFile)) && !exists(filepath.Join(w.Dir, goFile)) {
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// simulate writes what a share's blocks are, and measures nothing. It writes the first record, waits, and writes the
// others.
func simulate(w campaign.Work, plan []experiment.Block, wait func()) (campaign.End, error) {
	if err := result.WriteEnvironment(w.Dir, result.Environment{
		Experiment: w.Experiment.Name, Measure: "cost", Mode: result.ModeDuet, Start: time.Now().UTC(), End: time.Now().UTC(),
		Kernel: "6.18", CPUModel: "a CPU", CPUs: 2, Notes: []string{"When it began: 1.5 CPUs were used."},
	}); err != nil {
		return campaign.End{}, err
	}
	writer, _, err := result.OpenWriter(w.Dir)
	if err != nil {
		return campaign.End{}, err
	}
	defer writer.Close()
	writer.Node = w.Node
	for _, place := range w.Blocks {
		b := plan[place]
		for n := range w.Experiment.Windows {
			for _, cell := range b.Cells {
				if err := writer.AppendTrial(result.Trial{
					Cell: cell, AA: b.AA, Block: b.Index, Window: n, Sitting: w.Sitting, DUTLab: b.DUTLab, Start: time.Now().UTC(),
					Accepted: true,
				}); err != nil {
					return campaign.End{}, err
				}
			}
			if n == 0 {
				wait()
			}
		}
	}
	return campaign.End{Accepted: 1}, nil
}

// begin makes a campaign of simulated blocks: so many of one device, and one A/A block.
func begin(t testing.TB, dir string, blocks, local int) *campaign.Campaign {
	t.Helper()
	text := fmt.Sprintf("duts = [\"one\"]\nclients = [1]\nblocks = %d\naa_blocks = 1\nwindows = 2\n", blocks)
	return create(t, campaign.New{Dir: dir, Experiments: []*experiment.Experiment{parse(t, "tiny", text)}, Local: local})
}

func parse(t testing.TB, name, text string) *experiment.Experiment {
	t.Helper()
	e, err := simulated.Parse(name+".toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// create makes a campaign whose jobs run this program.
func create(t testing.TB, n campaign.New) *campaign.Campaign {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.Program, n.Command, n.WriteExperiment = program, "gateweigh campaign start tiny.toml", writeExperiment
	c, err := campaign.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func survey(t testing.TB, c *campaign.Campaign) campaign.Status {
	t.Helper()
	s, err := c.Survey(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// collect makes one run of a campaign, and returns its trials.
func collect(t testing.TB, c *campaign.Campaign, out string) (campaign.Collected, result.Run) {
	t.Helper()
	got, err := c.Collect(0, out, simulated, writeExperiment)
	if err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(out)
	if err != nil {
		t.Fatal(err)
	}
	return got, run
}

// writeExperiment writes an experiment that names no files.
func writeExperiment(dir string, e *experiment.Experiment) error {
	return result.ReplaceFile(filepath.Join(dir, result.ExperimentFile), e.Encode())
}
