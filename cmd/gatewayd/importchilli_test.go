package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/chilliconf"
)

// TestImportLeavesNothing: if a file cannot be written, those before it are removed, and those that were there stay.
func TestImportLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	there := filepath.Join(folder, "gatewayd.toml")
	if err := os.WriteFile(there, []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []chilliconf.Secret{{Name: "uam.secret", Text: "a"}, {Name: "radius.secret", Text: "b"},
		{Name: "gatewayd.toml", Text: "c"}}
	if err := writeAll(folder, files); err == nil {
		t.Error("a file was replaced")
	}
	left, err := os.ReadDir(folder)
	if text, bad := os.ReadFile(there); err != nil || len(left) != 1 || bad != nil || string(text) != "of somebody else" {
		t.Errorf("%v are left (%v), and gatewayd.toml is %q (%v)", left, err, text, bad)
	}
	if err := os.Remove(there); err != nil {
		t.Fatal(err)
	}
	if err := writeAll(folder, files); err != nil {
		t.Error(err)
	}
}
