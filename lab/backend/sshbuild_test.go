// Steps of TestFaultsOverSSH (sshfaults_test.go) about agents of other builds than the lab's. remotes makes the backend
// of the test's machines (ssh_test.go), and open opens it.

package backend_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// builds are the agents that a router may have: where this one lies, and what comes of it.
var builds = []struct {
	name    string
	before  string // on the router
	brought bool   // the lab brings its own
}{
	{"installed, of the lab's build", "cp /run/kit/agent /root/bin/gateweigh-agent", false},
	{"installed, of another build", "cp /run/kit/another /root/bin/gateweigh-agent", true},
	{"installed, and no program", "echo 'exit 3' >/root/bin/gateweigh-agent; chmod 755 /root/bin/gateweigh-agent", true},
	{"left in a temporary folder",
		"mkdir /dev/shm/gateweigh-left; cp /run/kit/another /dev/shm/gateweigh-left/gateweigh-agent",
		true},
}

// otherBuilds: whatever agents a router has, the lab works with its own build, and leaves the others as they are; what
// another lab has taken is refused.
func otherBuilds(t *testing.T, m *sshtest.Machines) {
	for _, build := range builds {
		t.Run(build.name, func(t *testing.T) {
			m.Run(t, "router", `mkdir /root/bin; echo "PATH=/root/bin:\$PATH" >/root/.bashrc; `+build.before)
			defer m.Run(t, "router", "rm -rf /root/bin /root/.bashrc /dev/shm/gateweigh-left")
			before := m.State(t, "router")
			list, done, err := backend.SSH{Config: m.Config, Machines: remotes(m).Machines[:1]}.Survey(
				t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
			if err != nil || len(list) != 1 || len(list[0].Faults) > 0 || list[0].Brought != build.brought {
				t.Errorf("%v: %+v: want an agent that was brought: %v", err, list, build.brought)
			}
			if err := done(); err != nil {
				t.Error(err)
			}
			m.AwaitRestored(t, "router", before)
		})
	}
	t.Run("running", func(t *testing.T) { otherBuildRuns(t, m) })
}

// otherBuildRuns: a lab of another build has the router's interfaces. It is named, goes on, and once it has ended the
// interfaces are there.
func otherBuildRuns(t *testing.T, m *sshtest.Machines) {
	before := m.State(t, "router")
	guard, err := json.Marshal(agent.Guard{Links: []string{"rlan", "rwan"},
		Agent: agent.Options{Run: "theirs", Host: "a/router", Isolated: true, Patience: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("ssh", "-F", m.Config, "router", "exec /run/kit/another "+agent.GuardCommand+
		" '"+string(guard)+`' "$SSH_CONNECTION"`)
	var said bytes.Buffer
	other.Stderr = &said
	input, err := other.StdinPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("the other agent says: %s", said.String())
		}
	}()
	labtest.Await(t, "the other lab has the interfaces", func() bool {
		return !strings.Contains(m.Run(t, "router", "ls /sys/class/net"), "rlan\n")
	})
	b := open(t, remotes(m).Machines[:1], m)
	_, err = b.Start(t.Context(), "a/router", true)
	if list := backend.HostErrors(err); len(list) != 1 || list[0].Key != "lan" ||
		!strings.Contains(err.Error(), "in use by another lab (run theirs, process ") {
		t.Errorf("%v: want who has the interface", err)
	}
	input.Close()
	if err := other.Wait(); err != nil {
		t.Errorf("the other lab's agent: %v: %s", err, said.String())
	}
	h := changed(t, b)
	h.Stop()
	b.Close()
	m.AwaitRestored(t, "router", before)
}

// putAgents gives the machines /run/kit/agent, which is this program, and /run/kit/another, one of another build.
func putAgents(t *testing.T, m *sshtest.Machines) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string][]byte{"agent": self, "another": otherBuild(t, self)} {
		if err := os.WriteFile(filepath.Join(m.Dir, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// otherBuild is this program with the mark of another build.
func otherBuild(t *testing.T, self []byte) []byte {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(self))
	if err != nil {
		t.Fatal(err)
	}
	note := f.Section(".note.go.buildid")
	other := bytes.Clone(self)
	last := note.Offset + note.Size - 2 // after it is padding
	for ; other[last] == 0; last-- {
	}
	other[last] ^= 1
	return other
}
