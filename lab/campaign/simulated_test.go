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

// simulated is a catalogue with one measure, whose blocks write records without measuring.
var simulated = experiment.Catalogue{Measures: []experiment.Measure{{
	Name: "simulated",
	Settings: func(exp *experiment.Experiment) []experiment.Setting {
		cell := result.NewCell(result.Clients, 1, result.Profile, result.PerPacket, result.Direction, result.Up)
		return []experiment.Setting{{Cell: cell, Cells: []result.Cell{cell.With(result.OfferedMbps, 10)}}}
	},
	Duration: func(_ *experiment.Experiment, g experiment.Group) time.Duration {
		return time.Duration(g.Blocks) * time.Second
	},
}}}

// While holdFile is in a campaign's folder, its blocks wait, except those with goFile in their own folder.
const (
	holdFile = "hold"
	goFile   = "go"
	lengthMs = "GATEWEIGH_SIMULATED_MS" // of a block; 0: none
)

// TestMain lets the test binary be the program that jobs run: "campaign block DIR …".
func TestMain(m *testing.M) {
	if len(os.Args) < 4 || os.Args[1] != "campaign" {
		os.Exit(m.Run())
	}
	set := flag.NewFlagSet("block", flag.ExitOnError)
	submission, task := set.Int("submission", -1, ""), set.Int("task", -1, "")
	part, number := set.Int("part", 0, ""), set.Int("share", 0, "")
	node := set.String("node", os.Getenv("SLURMD_NODENAME"), "")
	set.Parse(os.Args[4:])
	if err := carryOutBlock(os.Args[3], *submission, *task, campaign.Share{Part: *part, Number: *number},
		*node); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func carryOutBlock(dir string, submission, task int, share campaign.Share, node string) error {
	opened, err := campaign.Open(dir)
	if err == nil && submission >= 0 {
		share, err = opened.Task(submission, task)
	}
	if err != nil {
		return err
	}
	attempt := campaign.Attempt{Node: node, PID: os.Getpid(), Begun: time.Now().UTC()}
	return opened.CarryOut(context.Background(), share, simulated, attempt,
		func(_ context.Context, work campaign.Work) (campaign.End, error) {
			return simulate(work, work.Experiment.Plan(), func() {
				ms, _ := time.ParseDuration(os.Getenv(lengthMs) + "ms")
				time.Sleep(ms)
				for exists(filepath.Join(dir, holdFile)) && !exists(filepath.Join(work.Dir, goFile)) {
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// simulate writes records of a share's blocks without measuring. It calls wait after the first window of each block.
func simulate(work campaign.Work, plan []experiment.Block, wait func()) (campaign.End, error) {
	if err := result.WriteEnvironment(work.Dir, result.Environment{
		Experiment: work.Experiment.Name, Measure: "cost", Mode: result.ModeDuet, Start: time.Now().UTC(),
		End:    time.Now().UTC(),
		Kernel: "6.18", CPUModel: "a CPU", CPUs: 2, Notes: []string{"When it began: 1.5 CPUs were used."},
	}); err != nil {
		return campaign.End{}, err
	}
	writer, _, err := result.OpenWriter(work.Dir)
	if err != nil {
		return campaign.End{}, err
	}
	defer writer.Close()
	writer.Node = work.Node
	for _, place := range work.Blocks {
		block := plan[place]
		for n := range work.Experiment.Windows {
			for _, cell := range block.Cells {
				if err := writer.AppendTrial(result.Trial{
					Cell: cell, AA: block.AA, Block: block.Index, Window: n, Sitting: work.Sitting, DUTLab: block.DUTLab,
					Start:    time.Now().UTC(),
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

// begin makes a campaign of so many simulated blocks of one device, and one A/A block.
func begin(t testing.TB, dir string, blocks, local int) *campaign.Campaign {
	t.Helper()
	text := fmt.Sprintf("duts = [\"one\"]\nclients = [1]\nblocks = %d\naa_blocks = 1\nwindows = 2\n", blocks)
	return create(t, campaign.New{Dir: dir, Experiments: []*experiment.Experiment{parse(t, "tiny", text)}, Local: local})
}

func parse(t testing.TB, name, text string) *experiment.Experiment {
	t.Helper()
	exp, err := simulated.Parse(name+".toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return exp
}

// create makes a campaign whose jobs run the test binary.
func create(t testing.TB, settings campaign.New) *campaign.Campaign {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	settings.Program, settings.Command, settings.WriteExperiment = program, "gateweigh campaign start tiny.toml",
		writeExperiment
	opened, err := campaign.Create(settings)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func survey(t testing.TB, opened *campaign.Campaign) campaign.Status {
	t.Helper()
	status, err := opened.Survey(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// collect collects a campaign and reads the run.
func collect(t testing.TB, opened *campaign.Campaign, out string) (campaign.Collected, result.Run) {
	t.Helper()
	collected, err := opened.Collect(0, out, simulated, writeExperiment)
	if err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(out)
	if err != nil {
		t.Fatal(err)
	}
	return collected, run
}

// writeExperiment writes an experiment that names no files.
func writeExperiment(dir string, exp *experiment.Experiment) error {
	return result.ReplaceFile(filepath.Join(dir, result.ExperimentFile), exp.Encode())
}
