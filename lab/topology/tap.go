package topology

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

// MaxCaptureHosts is how many hosts a splitter may lead to.
const MaxCaptureHosts = 16

// PortSplitter is the splitter's port at which frames come in.
const PortSplitter = "splitter"

// Tap is hosts that see the same frames at the same time (study 5: machines behind an optical splitter). The
// splitter is a switch that sends each frame to all its ports, because nobody has the address that frames go to.
// Capture hosts have no address either: like monitors they take what comes, and their stack drops it.
//
//	generator            splitter
//	 g0 ═══ t0 ┐                ┌ t1 ═══ m0 capture
//	           └ switch, floods ┼ t2 ═══ m1 capture2
//	                            └ …
func Tap(p Spec) Topology {
	in := p.port("splitter", "t0", false)
	in.Name = PortSplitter
	t := Topology{
		Nodes: []Node{
			{Name: "generator", Role: backend.RoleGenerator, Sysctls: client.Sysctls},
			{Name: "splitter", Role: backend.RoleSplitter, Sysctls: client.Sysctls, Switch: true, Floods: true},
		},
		Links:      []Link{{A: p.port("generator", "g0", true, generatorAddr), B: in}},
		Addressing: Addressing{LAN: DefaultLAN},
		Urgent:     p.Urgent,
	}
	p.addIPv6(&t.Addressing)
	for i := range max(p.CaptureHosts, 1) {
		name := "capture"
		if i > 0 {
			name = fmt.Sprintf("capture%d", i+1)
		}
		t.Nodes = append(t.Nodes, Node{Name: name, Metered: true, Sysctls: routerSysctls})
		t.Links = append(t.Links, Link{A: p.port("splitter", fmt.Sprintf("t%d", i+1), false), B: p.port(name, fmt.Sprintf(
			"m%d", i), p.Aggregate)})
	}
	return t
}
