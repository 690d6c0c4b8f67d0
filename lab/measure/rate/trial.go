package rate

import (
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// KindRate is the kind of the records of windows.
const KindRate = "rate"

// Outcomes of a window other than a rate: what is wrong with the path.
const (
	// BlackHole: packets vanish because they are too long, and no ICMP message tells the sender (RFC 2923).
	BlackHole = "mtu-black-hole"
	// Stalled: nothing arrived, although short packets go both ways.
	Stalled = "stalled"
)

// What kept a window's rate from being higher.
const (
	ByLink    = "link"     // the link between the gateways was full
	ByGateway = "gateways" // the gateways' CPU was full
	ByEnds    = "ends"     // the CPU of clients, server and generator was full
	ByUnknown = "other"    // none of these: TCP's window, a lock, a queue
)

// Trial is the record of one window in which TCP sent as fast as it could. Bytes of frames include the Ethernet header
// of 14 bytes.
type Trial struct {
	result.Head
	Cell   result.Cell `json:"cell"`   // what was measured, by its dimensions
	Window int         `json:"window"` // counts from 0 within (block, cell)

	SetupSeconds float64 `json:"setup_seconds"`        // of the block's lab with its device
	Outcome      string  `json:"outcome,omitempty"`    // what is wrong with the path: mtu-black-hole, stalled
	LimitedBy    string  `json:"limited_by,omitempty"` // what kept the rate from being higher: link, gateways, ends, other

	LoadSeconds    float64 `json:"load_seconds"`    // between the receiver's two readings
	DeliveredBytes int64   `json:"delivered_bytes"` // payload
	LinkSeconds    float64 `json:"link_seconds"`    // between the gateways' two readings
	LinkBytes      int64   `json:"link_bytes"`      // bytes of frames from the gateway where the load enters to the other
	LinkPackets    int64   `json:"link_packets"`    // frames from the gateway where the load enters to the other
	// WireBytes is what each frame takes on the wire besides these bytes: FCS, preamble and gap. It is 0 in old runs.
	WireBytes   int64 `json:"wire_bytes,omitempty"`
	Dropped     int64 `json:"dropped"`     // packets that links of the gateways dropped
	Segments    int64 `json:"segments"`    // TCP segments that the sending hosts sent
	Retransmits int64 `json:"retransmits"` // TCP segments that they sent again
	// Of both gateways.
	FragCreates int64 `json:"frag_creates"` // fragments that the gateways made
	ReasmReqds  int64 `json:"reasm_reqds"`  // fragments that they received
	ReasmFails  int64 `json:"reasm_fails"`  // packets given up for want of a fragment
	FragFails   int64 `json:"frag_fails"`   // packets that were too long to forward

	// By lab/tunnel.
	TunnelMTU   int     `json:"tunnel_mtu"`   // largest packet that the tunnel takes, as the device says, bytes
	PathMTU     rtt.MTU `json:"path_mtu"`     // largest packets that passed in the measurement
	LinkMbps    float64 `json:"link_mbps"`    // rate of the link; 0: no limit
	TheoryShare float64 `json:"theory_share"` // useful share of the link by the headers
	Formula     string  `json:"formula"`      // how theory_share is computed
	Headers     string  `json:"headers"`      // around each packet, in words

	IdleRTT result.RTT `json:"idle_rtt_us"` // before the load
	RTT     result.RTT `json:"rtt_us"`      // under the load

	// CPU of the gateway where the load enters the tunnel, and of the one where it leaves, exact ns; both have ThreadNs.
	EnterNs int64 `json:"enter_ns"` // CPU of the gateway where the load enters the tunnel
	LeaveNs int64 `json:"leave_ns"` // CPU of the gateway where it leaves
	WaitNs  int64 `json:"wait_ns"`  // run-queue wait of both gateways' threads
	// WaitedForOthers is the share of the window for which these threads waited for a CPU that other programs had.
	WaitedForOthers float64          `json:"waited_for_others"`
	ThreadNs        map[string]int64 `json:"thread_ns"`              // CPU of both gateways' threads by name
	EndsNs          int64            `json:"ends_ns"`                // CPU of clients, server and generator
	GatewayCPUs     int              `json:"gateway_cpus"`           // number of CPUs that both gateways share
	GeneratorCPU    float64          `json:"generator_cpu"`          // CPU of the busiest traffic thread, cores
	RouterShare     float64          `json:"router_share,omitempty"` // share of their CPU's time that slowed gateways had
	Machine         result.Machine   `json:"machine"`                // /proc/stat over the window
}

// Mbps returns the rate of the payload that arrived, Mbit/s.
func (t Trial) Mbps() float64 { return bench.Mbps(t.DeliveredBytes, t.LoadSeconds) }

// share returns the share of their CPUs' time that slowed gateways had; 1 if they were not slowed.
func (t Trial) share() float64 {
	if t.RouterShare > 0 {
		return t.RouterShare
	}
	return 1
}
