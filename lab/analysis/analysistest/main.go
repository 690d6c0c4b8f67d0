package analysistest

import (
	"os"
	"runtime/debug"
	"testing"
)

// Main is for the TestMain of a package that summarises simulated runs by the thousand: each
// leaves only garbage, and at Go's default rate collecting takes two fifths of the tests' CPU time.
func Main(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
