package datapathtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestPageOfAttacks$ . -args -update

const attacksPage = "../../../docs/reference/gatewayd-attacks.md"

const attacksHead = `# Attacks on gatewayd, and what becomes of them

Made from gatewayd's source (gateway/datapath/datapathtest, make generate), where CI checks that each test exists. Each
test tries its attack on a network of its own, where clients and gateway are ports of a bridge. Names without a package
run over every data path and mode; *ebpf* is gateway/datapath/ebpf, other packages are below gateway/, and "gateway" is
that folder. A *stranger* is a client that is not logged in, with a lease or without. To run one:

    sudo go test ./gateway/datapath/... -run 'TestSuite/.*/ForgedRefusals'
`

// TestPageOfAttacks checks that the page is the one that documented describes, that it names every attack of the suite,
// and that each test which it names exists.
func TestPageOfAttacks(t *testing.T) {
	var b strings.Builder
	b.WriteString(attacksHead)
	for _, s := range documented {
		fmt.Fprintf(&b, "\n%s\n\n| What is tried | What happens | Test |\n|---|---|---|\n", s.head)
		for _, r := range s.rows {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.attack, r.outcome, r.tests)
		}
	}
	for _, a := range slices.Concat(attacks, floods) {
		if name := strings.TrimSuffix(a.name, "Bare"); !strings.Contains(b.String(), "`"+name+"`") {
			t.Errorf("no row names %s: write one into documented_test.go", name)
		}
	}
	sources := sourcesOfGateway(t)
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(b.String(), -1) {
		if !strings.Contains(sources, "func "+m[1]+"(") && !strings.Contains(sources, `"`+m[1]+`"`) {
			t.Errorf("there is no test %s", m[1])
		}
	}
	goldentest.Compare(t, attacksPage, b.String())
}

// sourcesOfGateway returns the sources of gatewayd.
func sourcesOfGateway(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"../../../gateway", "../../../cmd/gatewayd"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
