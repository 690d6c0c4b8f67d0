package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Bounds of lists in the page; trials.jsonl has everything.
const (
	rejectedRows = 100 // single rejected trials
	reasonRows   = 200 // reasons by cell
	failedRows   = 100 // blocks that failed
)

type rejectRow struct {
	Where, Reason string
	Count         int
}

// rejectedTrial has block, window and attempt counted from 1.
type rejectedTrial struct {
	Where, Reasons         string
	Block, Window, Attempt int
}

// failedRow is a block that failed; blocks count from 1 as they do while a run goes on.
type failedRow struct {
	DUT, Direction, Error, Since string
	Clients, Block               int
}

// addTrust lists what was rejected and what failed.
func (data *pageData) addTrust(run result.Run, s analysis.Summary) {
	for _, r := range s.AA.Rejects {
		data.Rejects = append(data.Rejects, rejectRow{"A/A pairs", r.Text, r.Count})
	}
	for _, c := range s.Cells {
		for _, r := range c.Rejects {
			data.Rejects = append(data.Rejects, rejectRow{cellPlace(c), r.Text, r.Count})
		}
	}
	data.Rejects, data.MoreReasons = bounded(data.Rejects, reasonRows)
	for _, l := range s.Limits {
		data.Limits = append(data.Limits, limitSentence(l)+".")
	}
	data.Rejected, data.MoreReject = rejectedTrials(run.Trials)
	failed, more := bounded(s.FailedBlocks, failedRows)
	for _, f := range failed {
		row := failedRow{DUT: f.Cell.Text(result.DUT), Direction: f.Cell.Text(result.Direction), Error: f.Error, Clients: f.Cell.Int(result.Clients), Block: f.Block + 1, Since: none}
		if f.Measured {
			row.Since = "measured"
		}
		data.Failed = append(data.Failed, row)
	}
	data.MoreFailed = more
}

// bounded cuts a list and says by how much.
func bounded[T any](list []T, most int) (kept []T, more int) {
	if len(list) <= most {
		return list, 0
	}
	return list[:most], len(list) - most
}

func cellPlace(c analysis.Cell) string {
	return fmt.Sprintf("%s, %s, %s %s", c.DUT(), rate(offered(c.Cell)), words.Counted(c.Int(result.Clients), "client"), c.Text(result.Direction))
}

// rejectedTrials lists single rejected trials, and how many are left out.
func rejectedTrials(trials []result.Trial) (rows []rejectedTrial, more int) {
	for _, t := range trials {
		switch {
		case t.Accepted:
		case len(rows) == rejectedRows:
			more++
		default:
			name := t.Cell.Text(result.DUT)
			if t.AA {
				name = "A/A"
			}
			rows = append(rows, rejectedTrial{
				Where:   fmt.Sprintf("%s, %s, %s %s", name, rate(offered(t.Cell)), words.Counted(t.Cell.Int(result.Clients), "client"), t.Cell.Text(result.Direction)),
				Reasons: words.Or(strings.Join(t.Rejects, "; "), "no reason recorded"),
				Block:   t.Block + 1, Window: t.Window + 1, Attempt: t.Attempt + 1,
			})
		}
	}
	return rows, more
}

// facts is the environment as name and value; what is not known is left out.
func facts(env result.Environment) []fact {
	var sides result.Sides
	if env.Sides != nil {
		sides = *env.Sides
	}
	all := []fact{
		{"CPU", strings.TrimSpace(fmt.Sprintf("%s %s", env.CPUModel, env.Arch))},
		{"CPUs online", positiveText(int64(env.CPUs), "")},
		{"Memory", positiveText(env.MemoryMiB, " MiB")},
		{"Virtualisation", env.Virtualisation},
		{"Kernel", env.Kernel},
		{"Placement", env.Placement},
		{"Clients", env.Clients},
		{"Only where the device is", sides.Device},
		{"Only at the clean router beside it", sides.Clean},
		{"gateweigh", env.GateweighVersion},
		{"SHA-256 of its binary", env.GateweighSHA256},
	}
	for _, name := range slices.Sorted(maps.Keys(env.Tools)) {
		all = append(all, fact{name, env.Tools[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(env.Sysctls)) {
		all = append(all, fact{name, env.Sysctls[name]})
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

func positiveText(n int64, unit string) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%s", n, unit)
}
