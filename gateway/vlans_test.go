package gateway

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// TestPortOfABridge: the port of a bridge is found by a MAC address, which there is none of an address that the bridge
// has not seen. An interface without VLANs has none.
func TestPortOfABridge(t *testing.T) {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "vbridge"}}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { netlink.LinkDel(bridge) })
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vport", MasterIndex: bridge.Index}, PeerName: "vpeer"}
	must(t, netlink.LinkAdd(port))
	t.Cleanup(func() { netlink.LinkDel(port) })
	mac := [6]byte{2, 0, 0, 0, 0, 7}
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: port.Index, Family: 7, Flags: netlink.NTF_MASTER,
		State: netlink.NUD_NOARP, HardwareAddr: mac[:]}))
	found, err := portOf(bridge, mac)
	if err != nil || found.Attrs().Name != "vport" {
		t.Fatalf("%+v, %v", found, err)
	}
	if v, err := vlansAt(found); err != nil || v.String() != "" {
		t.Errorf("its VLANs are %s, %v", v, err)
	}
	if other, err := portOf(bridge, [6]byte{2, 0, 0, 0, 0, 8}); err == nil {
		t.Errorf("an address that was never seen is at %s", other.Attrs().Name)
	}
}
