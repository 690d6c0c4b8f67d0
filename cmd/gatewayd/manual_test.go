package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gateweigh/gateweigh/manual/manualtest"
)

// TestManual: the manual pages and the page of commands are made from the commands.
func TestManual(t *testing.T) {
	b := manualBook(rootCommand())
	manualtest.Write(t, b, t.TempDir())
	manualtest.Page(t, b, "../../docs/reference/gatewayd-commands.md")
	manualtest.Again(t, func(env []string, folder string) {
		cmd := exec.Command("gatewayd", "manual", folder)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
