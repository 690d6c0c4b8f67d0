package transition

import (
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// Name is the measure's name in experiments and records.
const Name = "transition"

// KindStep is the kind of the records of steps.
const KindStep = "transition-step"

// Parts of the path of probes. Above: from host to host; these parts add up to Way, and Enter and Leave are the times
// inside the gateways. Below: from gateway to gateway.
//
//	pc1                   gw1                     gw2                     pc2
//	write ─Send─ leaves ─ToEnter─ in ─Enter─ out ─Cross─ in ─Leave─ out ─ToHost─ arrives ─Receive─ read
//	            due ─Late─ write ─Down─ out ─Link─ in ─Up─ read
//
// Down and Up are study 4's figures 6 and 7, where the gateway itself sends and receives through the tunnel.
const (
	Send    = "send"
	ToEnter = "to_enter"
	Enter   = "enter"
	Cross   = "cross"
	Leave   = "leave"
	ToHost  = "to_host"
	Receive = "receive"
	Way     = "way"

	Late = "late"
	Down = "tcp_to_ethernet"
	Link = "link"
	Up   = "ethernet_to_tcp"
)

// Step is one window: a run of probes from host to host, and one from gateway to gateway, under one load.
type Step struct {
	result.Head
	Cell   result.Cell `json:"cell"`   // what was measured, by its dimensions
	Window int         `json:"window"` // counts from 0 within (block, cell)

	SetupSeconds  float64 `json:"setup_seconds"`  // time to build the block's lab
	LoadSeconds   float64 `json:"load_seconds"`   // between the readings of the meters around the probes
	DeliveredMbps float64 `json:"delivered_mbps"` // background traffic that arrived meanwhile
	// Segments are those that the senders of a TCP background have sent, without the probes.
	Segments    int64 `json:"segments,omitempty"`
	Retransmits int64 `json:"retransmits,omitempty"` // segments of the background that were sent again

	Hosts    Ends `json:"hosts"`    // probes from host to host
	Gateways Ends `json:"gateways"` // probes from gateway to gateway

	// CPU time and run-queue wait where the probes enter and leave the tunnel.
	EnterCPU CPU `json:"enter_cpu"` // of the gateway where probes enter the tunnel
	LeaveCPU CPU `json:"leave_cpu"` // of the gateway where they leave it
	// Background is the share of the gateways' CPUs that background work used.
	Background  float64        `json:"background,omitempty"`
	RouterShare float64        `json:"router_share,omitempty"` // share of their CPU's time that slowed gateways had
	Machine     result.Machine `json:"machine"`                // /proc/stat over the step
}

// Ends is the record of a run of probes between two ends.
type Ends struct {
	Counts transition.Counts `json:"counts"` // of probes
	// Parts are the times of each part of the path, µs, by name. Parts without known times are left out.
	Parts map[string]transition.Distribution `json:"parts"`
	// OuterBytes is the length of the tunnel's packets with probes, with their Ethernet header. It is 0 if probes are not
	// encapsulated, or if the length is not known: Unknown then says why.
	OuterBytes int    `json:"outer_bytes"`
	Unknown    string `json:"unknown,omitempty"` // why the length of the tunnel's packets is not known
	// ClockErrorNs is the largest possible error of kernel time stamps against the other times.
	ClockErrorNs int64 `json:"clock_error_ns"`
	// Resent is the number of segments of the probes' connection that were sent again.
	Resent int `json:"resent,omitempty"`
	// Run-queue wait of the threads that write and read, over the run.
	SenderWaitNs   int64 `json:"sender_wait_ns"`   // of the thread that writes
	ReceiverWaitNs int64 `json:"receiver_wait_ns"` // of the thread that reads
}

// CPU has the CPU time of a gateway's threads, and how long they waited for their CPU, ns.
type CPU struct {
	NAPINs        int64 `json:"napi_ns"`         // polling threads
	ProcessNs     int64 `json:"process_ns"`      // the device's processes
	NAPIWaitNs    int64 `json:"napi_wait_ns"`    // run-queue wait of polling threads
	ProcessWaitNs int64 `json:"process_wait_ns"` // run-queue wait of processes
}

// partsOf returns the distribution of the times of each part of the path. gateways means that the probes went from
// gateway to gateway.
func partsOf(list []transition.Passage, gateways bool) map[string]transition.Distribution {
	times := map[string][]int64{}
	add := func(part string, from, to int64) {
		if from > 0 && to > 0 {
			times[part] = append(times[part], to-from)
		}
	}
	for _, p := range list {
		s := p.StopNs
		if gateways {
			add(Late, p.DueNs, p.WriteNs)
			add(Down, p.WriteNs, s[0])
			add(Link, s[0], s[1])
			add(Up, s[1], p.ReadNs)
			continue
		}
		add(Send, p.WriteNs, p.LeftNs)
		add(ToEnter, p.LeftNs, s[0])
		add(Enter, s[0], s[1])
		add(Cross, s[1], s[2])
		add(Leave, s[2], s[3])
		add(ToHost, s[3], s[4])
		add(Receive, s[4], p.ReadNs)
		add(Way, p.WriteNs, p.ReadNs)
	}
	parts := map[string]transition.Distribution{}
	for part, ns := range times {
		parts[part] = transition.Distribute(ns)
	}
	return parts
}
