package agent

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/lab/client"
)

// Neighbours are machines on one of the host's links.
type Neighbours struct {
	Link string           `json:"link"`
	List []client.Address `json:"list"`
}

// addNeighbours enters machines into the host's table of neighbours, as a switch's
// control plane does (extern_learn). Such entries age and are asked for like any
// other, but do not count: the kernel's table is one for the whole machine, and
// drops packets to those that no longer fit, a thousand unless its administrator
// says otherwise (gc_thresh3).
func addNeighbours(_ context.Context, n Neighbours) (none, error) {
	link, err := netlink.LinkByName(n.Link)
	if err != nil {
		return none{}, fmt.Errorf("entering neighbours on %s: %w", n.Link, err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		return none{}, fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	for _, a := range n.List {
		mac, err := net.ParseMAC(a.MAC)
		if err == nil {
			err = h.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: a.IP.AsSlice(), HardwareAddr: mac, State: netlink.NUD_REACHABLE, Flags: netlink.NTF_EXT_LEARNED,
			})
		}
		if err != nil {
			return none{}, fmt.Errorf("entering the neighbour %s on %s: %w", a.IP, n.Link, err)
		}
	}
	return none{}, nil
}
