// Steps of the tests over SSH (ssh_test.go, sshfaults_test.go): packets through a lab of several machines, and a router
// at which one logs in as an ordinary user. remotes makes the backend of the test's machines.

package backend_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// rules are what sudo on a router permits to an ordinary user.
var rules = []struct {
	name    string
	sudoers string
	before  string // what is done on the router first, and undone
	after   string
	key     string // what is said of the machine; empty: it can be a host
	want    string
}{
	{"a password", "lab ALL=(ALL) ALL", "", "", "sudo",
		"wants a password (sudo: a password is required): permit it without"},
	{"a terminal", "Defaults requiretty\nlab ALL=(root) NOPASSWD: ALL", "", "", "sudo", "wants a terminal"},
	{"nothing", "", "", "", "sudo", "a password is required"},
	{"a mistake", "lab ALL=(root NOPASSWD", "", "", "sudo", "sudo on ordinary"},
	{"no sudo", "", "touch /run/none; mount --bind /run/none /usr/bin/sudo", "umount /usr/bin/sudo", "address",
		"ordinary has no sudo: connect as root"},
	{"the agent alone", "lab ALL=(root) NOPASSWD: /run/lab/gateweigh-agent", "install -m 755 /run/kit/agent " +
		"/run/lab/gateweigh-agent; echo PATH=/run/lab:/usr/bin >/run/lab/.bashrc",
		"rm /run/lab/.bashrc /run/lab/gateweigh-agent",
		"", ""},
	{"an agent of another build alone", "lab ALL=(root) NOPASSWD: /run/lab/gateweigh-agent",
		"install -m 755 /run/kit/another /run/lab/gateweigh-agent; echo PATH=/run/lab:/usr/bin >/run/lab/.bashrc",
		"rm /run/lab/.bashrc /run/lab/gateweigh-agent", "address", "another build than the lab"},
	{"all, with a path of its own", "Defaults secure_path=/usr/bin:/bin, use_pty\nlab ALL=(root) NOPASSWD: ALL", "", "",
		"", ""},
}

// sudoOnRouter: a router that one logs into as an ordinary user is a host by sudo, or is refused, and never asks.
func sudoOnRouter(t *testing.T, m *sshtest.Machines) {
	m.AddOrdinaryUser(t, "")
	before := m.State(t, "router")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			m.AddOrdinaryUser(t, r.sudoers+"\n")
			if r.before != "" {
				m.Run(t, "router", r.before)
				defer m.Run(t, "router", r.after)
			}
			s := remotes(m)
			s.Machines[0].Address = "ordinary"
			if r.key == "" {
				forwards(t, s)
				return
			}
			s.Machines = s.Machines[:1]
			b, err := s.Open(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
			if err == nil {
				b.Close()
			}
			list := backend.HostErrors(err)
			if len(list) != 1 || list[0].Key != r.key || !strings.Contains(err.Error(), r.want) {
				t.Errorf("%v: %+v: want %s, and %q", err, list, r.key, r.want)
			}
			if _, remedy := backend.Remedy(err); remedy == "" {
				t.Errorf("%v has no remedy", err)
			}
		})
	}
	m.AwaitRestored(t, "router", before)
}

// forwards builds a lab on machines, and sends a packet through it.
func forwards(t *testing.T, s backend.SSH) {
	t.Helper()
	b, err := s.Open(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	lab, err := topology.Portal(topology.Spec{Cables: true, ClientHosts: 1}).Build(t.Context(), b, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	if out, err := lab.Clients[0].Run(
		t.Context(), agent.Command{Argv: []string{"ping", "-c", "1", lab.ServerIP.String()}}); err != nil {
		t.Errorf("%v: %+v", err, out)
	}
	if err := lab.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
