package measure

import (
	"path/filepath"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Follower is a result.Follower with the records of the table's measures.
type Follower struct {
	table    Table
	dir      string
	measured string // what the run measured when it was read last
	trials   *result.Follower
}

// Follow begins with the run in folder dir, of which nothing is read yet.
func (t Table) Follow(dir string) *Follower {
	return &Follower{table: t, dir: dir, trials: result.Follow(dir)}
}

// Read is Table.ReadRun of the folder as it is now; see result.Follower.Read.
func (f *Follower) Read() (run result.Run, grew bool, err error) {
	if err := result.CheckFiles(f.dir); err != nil {
		return result.Run{Dir: f.dir}, false, err
	}
	env, _ := result.ReadEnvironment(filepath.Join(f.dir, result.EnvironmentFile)) // the follower says what is wrong
	if env.Measure != f.measured {
		// records are read by what was measured
		f.measured, f.trials = env.Measure, result.Follow(f.dir)
	}
	run, grew, err = f.trials.Read(f.table.kinds(env.Measure)...)
	run, err = f.table.read(run, f.dir, err)
	return run, grew, err
}
