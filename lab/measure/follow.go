package measure

import (
	"path/filepath"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Follower reads a run again and again while it grows, as result.Follower does, with the records of the table's
// measures.
type Follower struct {
	table    Table
	dir      string
	measured string // name of the run's measure when it was read last
	trials   *result.Follower
}

// Follow returns a follower of the run in folder dir. It reads nothing yet.
func (t Table) Follow(dir string) *Follower {
	return &Follower{table: t, dir: dir, trials: result.Follow(dir)}
}

// Read is Table.ReadRun of the folder as it is now; see result.Follower.Read.
func (f *Follower) Read() (run result.Run, grew bool, err error) {
	if err := result.CheckFiles(f.dir); err != nil {
		return result.Run{Dir: f.dir}, false, err
	}
	env, _ := result.ReadEnvironment(filepath.Join(f.dir, result.EnvironmentFile)) // the follower reports an error of it
	if env.Measure != f.measured {
		// Kinds of record depend on the measure, so reading begins again.
		f.measured, f.trials = env.Measure, result.Follow(f.dir)
	}
	run, grew, err = f.trials.Read(f.table.kinds(env.Measure)...)
	run, err = f.table.read(run, f.dir, err)
	return run, grew, err
}
