package datapathtest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// uplink has the behaviour of a machine without a way to the internet: clients get the portal all the same.
var uplink = []behaviour{{"PortalWithoutUplink", portalWithoutUplink, Shape{}}}

// portalWithoutUplink: the portal answers HTTP to any address, from that address, also while the machine has no route
// to it, in each way that an uplink can fail; HTTPS is refused. Admitted clients continue once the uplink is back.
func portalWithoutUplink(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	w.admit(t, w.Alice)
	for _, c := range []struct{ name, fails, back string }{
		{"no default route", "ip route del default", "ip route add default via 192.0.2.2"},
		{"an unreachable default route", "ip route replace unreachable default",
			"ip route del unreachable default; ip route add default via 192.0.2.2"},
		{"the WAN is down", "ip link set wan0 down", "ip link set wan0 up; ip route add default via 192.0.2.2"},
	} {
		w.Router.Run(t, c.fails)
		for _, to := range []netip.Addr{netip.MustParseAddr("203.0.113.80"), Server, Garden} {
			portal := func() error {
				if got, err := get(w.Bob, to); !strings.Contains(got, "portal: "+w.Bob.Addr.String()+":") || err != nil {
					return fmt.Errorf("%s: HTTP for %s before login: %q, %v", c.name, to, got, err)
				}
				return nil
			}
			netnstest.Await(t, "the portal", portal) // a data path that follows the change needs some milliseconds
			must(t, portal())
		}
		if _, err := talk(w.Bob, netip.MustParseAddrPort("203.0.113.80:443"), "x"); err == nil ||
			strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: HTTPS before login is not refused: %v", c.name, err)
		}
		w.Router.Run(t, c.back)
		up := w.Up(t, w.Alice)
		up.Send(5)
		up.Whole(t, "after "+c.name)
	}
}
