// Package goldentest compares the output of tests with files. The flag -update writes those files anew.
package goldentest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update reports whether files are to be written anew.
var Update = flag.Bool("update", false, "write the files anew that tests compare with")

// Compare fails the test where its output differs from the file at a path.
func Compare[T string | []byte](t testing.TB, path string, made T) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(made)); diff != "" {
		t.Errorf("%s is another (-file +made); go test -update, or make generate, writes it:\n%s", path, diff)
	}
}
