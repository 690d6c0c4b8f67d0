package allowancetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	// folderVariable is the variable of the environment by which another process has Killed's folder.
	folderVariable = "GATEWEIGH_TEST_KILLED"
	// donePrefix begins the lines by which it says what it has done.
	donePrefix = "done "
)

// Killed runs the test t in another process, which finds folder by Folder, kills that by SIGKILL once it has called
// Done so often, and returns what it said by Done: at least so much, and in the order in which it did.
func Killed(t testing.TB, folder string, after int) (done []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), folderVariable+"="+folder)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, ok := strings.CutPrefix(lines.Text(), donePrefix)
		if !ok {
			continue
		}
		if done = append(done, what); len(done) == after {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	if len(done) < after {
		t.Fatalf("the other process did %d things, and not %d", len(done), after)
	}
	return done
}

// Folder is the folder that the process has from Killed; "": it is not one of Killed's.
func Folder() string { return os.Getenv(folderVariable) }

// Done tells Killed of a thing that is done. It may be called from several goroutines.
func Done(what any) { fmt.Printf("%s%v\n", donePrefix, what) }
