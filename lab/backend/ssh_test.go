// Tests of hosts on other machines, by SSH. Package sshtest makes the machines (m): router, client and server. Further
// tests and steps are in sshbuild_test.go, sshfaults_test.go and sshsudo_test.go.

package backend_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/backend"
)

// remotes are the machines of a test as an experiment names them.
func remotes(m *sshtest.Machines) backend.SSH {
	return backend.SSH{Config: m.Config, Machines: []backend.Remote{
		{Host: "router", Address: "router", Links: map[string][]string{"lan": {"rlan"}, "wan": {"rwan"}},
			Sudo: backend.SudoAuto},
		{Host: "client", Address: "client", Links: map[string][]string{"": {"ceth"}}, Sudo: backend.SudoAuto},
		{Host: "server", Address: "server", Links: map[string][]string{"": {"seth"}}, Sudo: backend.SudoAuto},
	}}
}

// TestOverSSH: a lab on three machines forwards, and leaves nothing on them.
func TestOverSSH(t *testing.T) {
	m := sshtest.New(t)
	m.Run(t, "router", `ip link set rlan mtu 1400 txqueuelen 500 up; ip link set rwan up; ethtool -K rlan tso off gro on
ip addr add 172.16.5.1/24 dev rlan; ip route add 172.17.0.0/16 via 172.16.5.9 dev rlan metric 7
ip addr add 192.168.137.77/24 dev rwan; sysctl -qw net.ipv4.conf.rlan.rp_filter=1
echo 1 >/sys/class/net/rlan/threaded`)
	m.Run(t, "client", `ip link set ceth up; echo "echo hello from bashrc; echo -n and more" >/root/.bashrc`)
	before := map[string]string{}
	for _, name := range sshtest.Names {
		before[name] = m.State(t, name)
	}
	forwards(t, remotes(m))
	for _, name := range sshtest.Names {
		m.AwaitRestored(t, name, before[name])
	}
}
