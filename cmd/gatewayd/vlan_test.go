// A test of a VLAN interface as the LAN. newNetwork makes the host of a gateway with clients and a server, in
// namespaces (world_test.go).

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
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
