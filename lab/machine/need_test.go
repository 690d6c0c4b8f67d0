// Tests of programs and kernel features that the lab needs. version is what Find tells of a program.

package machine

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// version is what Find tells of a need.
func version(t *testing.T, n Need) string {
	t.Helper()
	return Find(t.Context(), Query{Needs: []Need{n}, Versions: true})[0].Version
}

func TestVersionIsTheProgramsFirstLine(t *testing.T) {
	labtest.Program(t, "iperf3", "echo; echo 'iperf 3.99 (cJSON)'; echo more; exit 1\n")
	if v := version(t, Need{Program: "iperf3", Package: "iperf3"}); v != "iperf 3.99 (cJSON)" {
		t.Errorf("version %q", v)
	}
	labtest.Program(t, "dpkg-query", "echo \"$*\"\n")
	labtest.Program(t, "gwd-unknown", "echo ran >&2; touch \"$0.ran\"\n")
	if v := version(t, Need{Program: "gwd-unknown", Package: "gadgets"}); v != "gadgets -W -f ${Version} gadgets" {
		t.Errorf("version of an unknown program %q, want its package's", v)
	}
	path := (Need{Program: "gwd-unknown"}).Locate()
	if path == "" {
		t.Fatal("it is not found")
	}
	if _, err := os.Stat(path + ".ran"); err == nil {
		t.Error("an unknown program was run")
	}
	if v := version(t, Need{Program: "gwd-absent", Package: "gadgets"}); v != "" {
		t.Errorf("version of a missing program %q", v)
	}
}

// TestVersionTellsBuildsApart: a run records the version of the device's program, also if it lies beside the lab. Two
// builds with the same version text have different versions.
func TestVersionTellsBuildsApart(t *testing.T) {
	versions := map[string]bool{}
	for _, build := range []string{"one", "two"} {
		labtest.Program(t, "gatewayd", "[ $1 = version ] && echo gatewayd v1\n# build "+build+"\n")
		need := Need{Program: "gatewayd", NextToLab: true}
		v := version(t, need)
		if need.Program != "gatewayd" || !strings.HasPrefix(v, "gatewayd v1, sha256 ") {
			t.Errorf("%s: version %q", need.Program, v)
		}
		versions[v] = true
	}
	if len(versions) != 2 {
		t.Errorf("versions of two builds: %v", versions)
	}
}

// TestFeaturesAreTriedWithoutATrace: trying a feature changes neither the rules nor the
// interfaces of this network namespace, and one that does not work says why.
func TestFeaturesAreTriedWithoutATrace(t *testing.T) {
	before := state(t)
	for feature := range features {
		missing, unset := feature.missing(t.Context()), feature.Unset()
		if missing != "" {
			t.Logf("this kernel lacks %s: %s", feature, missing)
		}
		if feature.Script() != "" && unset != "" && missing == "" {
			t.Errorf("%s works, and what it is said to consist of is not in the kernel: %s", feature, unset)
		}
	}
	if after := state(t); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	labtest.Program(t, "iptables", "echo 'no such target' >&2; exit 1\n")
	labtest.Program(t, "nft", "exit 0\n")
	if missing := PacketQueue.missing(t.Context()); missing != "" {
		t.Errorf("nftables queues, and is said to lack %s", missing)
	}
	labtest.Program(t, "nft", "echo 'no such statement' >&2; exit 1\n")
	if missing := PacketQueue.missing(t.Context()); !strings.Contains(missing, "nft queue: ") ||
		!strings.Contains(missing, "NFQUEUE: no such target") {
		t.Errorf("without either way to queue: %q", missing)
	}
	labtest.Program(t, "ip", "echo 'no such device' >&2; exit 1\n")
	if missing := TUN.missing(t.Context()); missing != "no such device" {
		t.Errorf("a failing trial says %q", missing)
	}
	t.Setenv("PATH", t.TempDir())
	if missing := TUN.missing(t.Context()); missing != "" {
		t.Errorf("what cannot be tried is missing: %s", missing)
	}
}

func state(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "nft list ruleset; ip -o link | cut -d' ' -f2").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
