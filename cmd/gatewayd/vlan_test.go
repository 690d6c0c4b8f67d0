// Tests of VLAN interfaces as the LAN. newNetwork makes the host of a gateway with clients and a server, in
// namespaces (world_test.go).

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestVLANInterface: a VLAN interface is an interface like others: its client gets a lease, logs in and reaches the
// server. The kernel must have such interfaces, as the guest's has.
func TestVLANInterface(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	c := w.addUnaddressed()
	out, err := w.try("modprobe -q 8021q || :; ip -n $ID-router link add link lan0 name lan0.7 type vlan id 7")
	if err != nil {
		t.Skipf("the kernel lacks VLAN interfaces (CONFIG_VLAN_8021Q): %s", out)
	}
	w.sh(`ip -n $ID-router addr del 10.1.0.1/24 dev lan0; ip -n $ID-router addr add 10.1.0.1/24 dev lan0.7
ip -n $ID-router link set lan0.7 up; ip -n $ID-client1 link set c0 down; ip -n $ID-client1 link set c0 name trunk
ip -n $ID-client1 link add link trunk name c0 type vlan id 7; ip -n $ID-client1 link set trunk up
ip -n $ID-client1 link set c0 up`)
	must(t, os.WriteFile(filepath.Join(w.Dir, "gatewayd.toml"), []byte(fmt.Sprintf(`state_dir = "%[1]s/state"
run_dir = "%[1]s/run"
lan.interface = "lan0.7"
lan.address = "10.1.0.1/24"
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
datapath.pin_dir = "%[2]s"
`, w.Dir, w.Pins)), 0o600))
	w.start()
	c.lease()
	if c.passes(false) {
		t.Error("the client reaches the server before it has logged in")
	}
	verbs, err := w.control()
	must(t, err)
	_, err = verbs.Login(t.Context(), control.LoginRequest{Addr: c.addr, User: "ann"})
	must(t, err)
	if !c.passes(true) {
		t.Error("the client does not reach the server")
	}
}

// TestVLANOfASubscriber: a client in a QinQ pair of VLANs that is a port of the LAN's bridge comes in by RADIUS as its
// pair, which NAS-Port-Id and NAS-Port have in logins and accounting; one in a single VLAN likewise.
func TestVLANOfASubscriber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paired, single := w.addUnaddressed(), w.addUnaddressed()
	out, err := w.try("modprobe -q 8021q || :\n" +
		"ip -n $ID-router link add link lan0 name lan0.100 type vlan proto 802.1ad id 100")
	if err != nil {
		t.Skipf("the kernel lacks VLAN interfaces (CONFIG_VLAN_8021Q): %s", out)
	}
	w.sh(`router="ip -n $ID-router"; $router addr del 10.1.0.1/24 dev lan0
$router link add guests address 02:00:00:00:0a:01 type bridge; $router addr add 10.1.0.1/24 dev guests
$router link add link lan0.100 name lan0.100.20 type vlan id 20; $router link add link lan0 name lan0.7 type vlan id 7
$router link set lan0.100 up
for port in lan0.100.20 lan0.7; do $router link set $port master guests up; done; $router link set guests up
client() { host=$ID-$1; shift; ip -n $host link set c0 down; ip -n $host link set c0 name trunk
  ip -n $host link set trunk up; "$@"; ip -n $host link set c0 up; }
pair() { ip -n $host link add link trunk name trunk.100 type vlan proto 802.1ad id 100
  ip -n $host link set trunk.100 up; ip -n $host link add link trunk.100 name c0 type vlan id 20; }
one() { ip -n $host link add link trunk name c0 type vlan id 7; }
client ` + paired.host + ` pair; client ` + single.host + ` one`)
	config := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(config)
	must(t, err)
	text = []byte(strings.ReplaceAll(strings.ReplaceAll(string(text), "\"lan0\"", "\"guests\""), "[radius]\n",
		"[devices]\nradius = true\nuser_name = \"vlan\"\n[radius]\nnas_port_id = \"vlan\"\n"))
	must(t, os.WriteFile(config, text, 0o600))
	w.add("auth/users", "\n100:20 Cleartext-Password := \"100:20\"\n7 Cleartext-Password := \"7\"\n")
	w.auth.stop()
	w.auth.start()
	w.start()
	for c, vlan := range map[*client][2]string{paired: {"100:20", "409620"}, single: {"7", "7"}} {
		c.lease()
		s := c.awaitWay(session.Authenticated, session.ByMAC)
		if s.User != vlan[0] || s.VLANs != vlan[0] {
			t.Errorf("the session is %+v", s)
		}
		for kind, r := range map[string]record{"login": w.auth.accessRequests(s.ID)[0],
			"accounting": w.acct.awaitAccounting("Start", s.ID)} {
			if r.value("NAS-Port-Id") != vlan[0] || r.value("NAS-Port") != vlan[1] {
				t.Errorf("%s: %v", kind, r)
			}
		}
		if !c.passes(true) {
			t.Error("the client does not reach the server")
		}
	}
}
