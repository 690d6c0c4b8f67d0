package sshtest

import (
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// cable connects the machines by two pairs of cables, the first and the second (names with 2).
func (m *Machines) cable(t testing.TB) {
	t.Helper()
	for _, n := range []string{"", "2"} {
		for _, c := range [][4]string{{"client", "ceth", "router", "rlan"}, {"router", "rwan", "server", "seth"}} {
			bash(t, fmt.Sprintf("ip link add %s%s netns %d type veth peer name %s%[2]s netns %[5]d",
				c[1], n, m.pids[c[0]], c[3], m.pids[c[2]]))
		}
	}
}

// PowerOff kills all processes of the router at once. The kernel then removes both ends of its cables.
func (m *Machines) PowerOff(t testing.TB) {
	t.Helper()
	bash(t, fmt.Sprintf(`all=%d; new=$all
while [ "$new" ]; do new=$(ps -o pid= --ppid "$(echo $new | tr ' ' ,)" | tr -s '\n ' ' ' | sed 's/^ //; s/ $//') || new=
all="$all $new"; done; kill -9 $all`, m.pids["router"]))
}

// PowerOn waits until the old cables are gone, and starts the router anew with new ones.
func (m *Machines) PowerOn(t testing.TB) {
	t.Helper()
	netnstest.Until(t, "the old cables to be gone", func() bool {
		const bare = "lo\nmgmt\n"
		return m.Run(t, "client", "ls /sys/class/net") == bare && m.Run(t, "server", "ls /sys/class/net") == bare
	})
	m.boot(t, "router", "10.99.0.2")
	m.cable(t)
	m.await(t, "router")
}
