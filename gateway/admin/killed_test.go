package admin

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// auditFolder names the audit log's folder to the process that TestAuditOutlastsKills kills.
const auditFolder = "ADMIN_TEST_AUDIT"

// TestAuditOutlastsKills: of a process that is killed while it writes entries, several at once, and begins new files,
// all entries that it said were begun are in the log, and all lines are whole or end the file.
func TestAuditOutlastsKills(t *testing.T) {
	if dir := os.Getenv(auditFolder); dir != "" {
		writeUntilKilled(t, dir)
	}
	dir, last := t.TempDir(), uint64(0)
	for kill := range 40 {
		answered := killed(t, dir, 5+kill%23)
		a, err := openAudit(dir, quiet(t))
		must(t, err)
		all, _, damaged, err := a.page(0, 1000)
		must(t, err)
		present, oldest := map[uint64]string{}, a.last
		for _, e := range all {
			if present[e.ID] != "" {
				t.Fatalf("kill %d: two entries have the ID %d", kill, e.ID)
			}
			present[e.ID], oldest = e.Object, min(oldest, e.ID)
		}
		for id, object := range answered {
			if id < oldest && a.last-id > auditFiles*fewest && id > last {
				continue // the kill came late: the oldest file was removed
			}
			if present[id] != object || id <= last {
				t.Fatalf("kill %d: entry %d is %q, and %q was answered; the last before was %d", kill, id, present[id],
					object, last)
			}
		}
		if damaged > kill+1 { // at most one line is torn by each kill
			t.Fatalf("kill %d: %d damaged lines", kill, damaged)
		}
		last = a.last
		must(t, a.close())
	}
	files, err := filepath.Glob(filepath.Join(dir, auditName+".*")) // a kill between two renamings leaves a number out
	if must(t, err); len(files) < 2 {
		t.Errorf("no file was begun: there are %v", files)
	}
}

// fewest is how many entries a file of writeUntilKilled has at least.
const fewest = 4

// writeUntilKilled writes entries from several goroutines, and prints the ID and object of each that is on the disk.
func writeUntilKilled(t *testing.T, dir string) {
	auditBytes = 1500 // some 8 entries
	a, err := openAudit(dir, quiet(t))
	must(t, err)
	for writer := range 4 {
		go func() {
			for i := 0; ; i++ {
				object := fmt.Sprint(os.Getpid(), ".", writer, ".", i)
				id, err := a.begin(person{Name: "ann", way: "api"}, "session.end", object, nil)
				if err != nil {
					panic(err)
				}
				os.Stdout.WriteString(fmt.Sprintf("entry %d %s\n", id, object))
				a.end(id, "done")
			}
		}()
	}
	select {}
}

// killed runs a process that writes entries, kills it after so many, and returns all that it said, by ID.
func killed(t *testing.T, dir string, entries int) map[uint64]string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAuditOutlastsKills$")
	cmd.Env = append(os.Environ(), auditFolder+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, netnstest.Start(cmd))
	kill := sync.OnceFunc(func() { cmd.Process.Kill() })
	defer cmd.Wait()
	defer kill()
	answered := map[uint64]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "entry" {
			t.Fatalf("the process says %q", lines.Text())
		}
		id, err := strconv.ParseUint(fields[1], 10, 64)
		must(t, err)
		answered[id] = fields[2]
		if len(answered) == entries {
			kill() // and read on: it may have said more
		}
	}
	if len(answered) < entries {
		t.Fatalf("the process ended after %d entries", len(answered))
	}
	return answered
}
