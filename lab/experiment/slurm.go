package experiment

import (
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Slurm has the options with which Slurm is asked for the nodes of a campaign, [slurm]. A zero value leaves the choice
// to Slurm.
type Slurm struct {
	Partition  string        // the partition that has the nodes
	Account    string        // the account that the jobs are charged to
	Constraint string        // features that nodes must have
	Container  string        // folder of an OCI bundle in which blocks run
	TimeLimit  time.Duration // of one block; 0: the partition's
	Nodes      int           // most nodes at a time; 0: as many as are free
}

// Bounds of what a campaign may ask for.
const (
	minTimeLimit = time.Minute // Slurm counts minutes
	maxTimeLimit = 7 * 24 * time.Hour
	maxNodes     = 10_000
)

// slurmKeys is every key of [slurm].
var slurmKeys = []fieldOf[Slurm]{
	field("partition", slurmWord, func(s *Slurm) *string { return &s.Partition }).
		means("of a campaign: the partition of Slurm that has the nodes; default: Slurm's"),
	field("account", slurmWord, func(s *Slurm) *string { return &s.Account }).
		means("that the jobs are charged to"),
	field("constraint", slurmExpression, func(s *Slurm) *string { return &s.Constraint }).
		means("features that nodes must have, as `sbatch --constraint` takes them"),
	field("container", absolute, func(s *Slurm) *string { return &s.Container }).
		means("folder of the OCI bundle that blocks run in, on every node; default: none"),
	field("time_limit", Duration(minTimeLimit, maxTimeLimit), func(s *Slurm) *time.Duration { return &s.TimeLimit }).
		means("of one block, rounded up to minutes; default: the partition's"),
	field("nodes", strict.Integer(0, maxNodes), func(s *Slurm) *int { return &s.Nodes }).
		means("most nodes that measure at the same time; 0: as many as are free"),
}

// slurmFields are the keys of [slurm] as keys of an experiment.
var slurmFields = inTable("slurm", slurmKeys, func(e *Experiment) *Slurm { return &e.Slurm })

// inTable makes of the keys of a table, which are fields of a T, optional keys of the E that contains the T.
func inTable[E, T any](table string, keys []fieldOf[T], pointer func(*E) *T) (fields []fieldOf[E]) {
	for _, k := range keys {
		fields = append(fields, fieldOf[E]{
			key: table + "." + k.key, optional: true, meaning: k.meaning,
			set: func(e *E, v any) error { return k.set(pointer(e), v) },
			get: func(e *E) any { return k.get(pointer(e)) },
		})
	}
	return fields
}

// slurmWord accepts the name of a partition or account of Slurm's.
var slurmWord = strict.AcceptText("a name of Slurm's, without blanks", func(s string) (string, bool) {
	return s, s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsAny(s, " \t\n\x00'\"\\`$;|<>()")
})

// slurmExpression accepts features joined by Slurm's signs: "amd&(ib|eth)".
var slurmExpression = strict.AcceptText("features as sbatch --constraint takes them", func(s string) (string, bool) {
	return s, s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsAny(s, " \t\n\x00'\"\\`$;<>")
})
