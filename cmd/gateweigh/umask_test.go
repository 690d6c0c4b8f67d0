// Tests of runs under a strict umask.

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// shell makes a command run a shell script, in which $gateweigh is the program.

// TestUmask: with umask 077, the programs of devices that give up root can still read the files made for them, and all
// users can read the run.
func TestUmask(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "modes.toml", `duts = ["modes", "opennds"]
clients = [2]
offered_mbps = [10]
blocks = 1
aa_blocks = 0
windows = 1
window = "300ms"
warmup = "200ms"
redo = 0
[dut.modes]
files = { "/etc/here/kept.conf" = "for all" }
start = '''
echo made > made
setpriv --reuid=65534 --regid=65534 --clear-groups cat made /etc/here/kept.conf
'''
`)
	measured(t, finish(t, shell(command(t, dir), `umask 077; exec "$gateweigh" run modes.toml --out deep/r`)))
	for name, want := range map[string]os.FileMode{"deep": 0o755, "deep/r": 0o755, "deep/r/logs": 0o755,
		"deep/r/report.html": 0o644, "deep/r/trials.jsonl": 0o644, "deep/r/environment.json": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", name, info, err, want)
		}
	}
}
