package logins

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's name in experiments and records.
const Name = "logins"

// KindStorm is the kind of the records of login storms.
const KindStorm = "storm"

// Storm is the record of one login storm: in a new lab, all clients lease and then all log in at a device. A rejected
// storm keeps its figures.
type Storm struct {
	result.Head
	DUT       string  `json:"dut"`        // name of the device
	Clients   int     `json:"clients"`    // simulated clients
	LoginRate float64 `json:"login_rate"` // clients a second, in both phases; 0: all at the same moment

	Dimensions result.Cell `json:"cell,omitzero"` // the whole cell, if it has more dimensions than the keys before

	// Died are programs of the device that ended by themselves. The storm is still accepted.
	Died []string `json:"died,omitempty"`

	SetupSeconds  float64 `json:"setup_seconds"`  // time to build the lab and start the device
	CreateSeconds float64 `json:"create_seconds"` // time to create the clients' namespaces and links
	// DeviceLeases: the device leases addresses itself; otherwise the lab does.
	DeviceLeases bool `json:"device_leases"`

	Lease Phase `json:"lease"` // all clients lease
	Login Phase `json:"login"` // then those with an address log in

	// Memory of the device's processes.
	IdlePSSMiB   float64 `json:"idle_pss_mib"`   // memory of the device's processes before the first client
	LeasedPSSMiB float64 `json:"leased_pss_mib"` // the same after all leases
	LoggedPSSMiB float64 `json:"logged_pss_mib"` // the same after all logins

	// TailSeconds is the time after the end of each phase in which CPU time still counts for it: devices delay work such
	// as accounting.
	TailSeconds float64 `json:"tail_seconds"`
}

// SetCell sets the storm's dimensions. It sets Dimensions only if the other fields cannot hold the whole cell.
func (s *Storm) SetCell(c result.Cell) {
	s.DUT, s.Clients, s.LoginRate = c.Text(result.DUT), c.Int(result.Clients), c.Number(LoginRate)
	if s.Cell() != c {
		s.Dimensions = c
	}
}

// Cell returns the storm's dimensions.
func (s Storm) Cell() result.Cell {
	if s.Dimensions != (result.Cell{}) {
		return s.Dimensions
	}
	return result.NewCell(result.DUT, s.DUT, result.Clients, s.Clients, LoginRate, s.LoginRate)
}

// Phase has the figures of one phase of a storm, in which all clients lease or all log in.
type Phase struct {
	Asked   int `json:"asked"`   // clients that tried
	Through int `json:"through"` // clients that succeeded
	Tries   int `json:"tries"`   // attempts of all clients; for leases, messages sent again count
	Retried int `json:"retried"` // clients whose first attempt failed, whether or not they got through

	Seconds        float64 `json:"seconds"`         // until the last client was through or had given up
	ThroughSeconds float64 `json:"through_seconds"` // until the last one was through
	PerSecond      float64 `json:"per_second"`      // clients through in ThroughSeconds

	// Of the clients that got through, from each one's turn, milliseconds.
	P50Ms float64 `json:"p50_ms"` // median, of the clients that got through, from each one's turn
	P90Ms float64 `json:"p90_ms"` // 90th percentile
	P99Ms float64 `json:"p99_ms"` // 99th percentile
	MaxMs float64 `json:"max_ms"` // the longest
	// LateMs is the longest time by which a client began after its turn: the delay of the client host.
	LateMs float64 `json:"late_ms"`

	Failures []result.Reason `json:"failures,omitempty"` // why clients gave up
	Refusals []result.Reason `json:"refusals,omitempty"` // why first attempts failed

	// CPU until the phase's end and its tail, exact ns.
	NAPINs    int64 `json:"napi_ns"`    // the router's polling threads, until the phase's end and its tail
	ProcessNs int64 `json:"process_ns"` // the device's processes, likewise
	WaitNs    int64 `json:"wait_ns"`    // run-queue wait of the same threads
	// RoleNs is exact CPU by role: router, client, radius (programs of the server), server (its other CPU time), agents.
	RoleNs   map[string]int64 `json:"role_ns"`
	ThreadNs map[string]int64 `json:"thread_ns"` // router threads and processes by name
	Machine  result.Machine   `json:"machine"`   // /proc/stat, without the tail
	// Busy shares of CPUs are until the phase's end, without the tail.
	// RouterBusy is the busy share of the routers' CPUs. For slowed routers it is the busy share of the time left to them.
	RouterBusy float64 `json:"router_busy"`
	// RouterShare is the share of their CPUs' time that slowed routers had, by the task clock of the program that took the
	// other part.
	RouterShare   float64 `json:"router_share,omitempty"`
	EndpointsBusy float64 `json:"endpoints_busy"` // share of the CPUs of clients and server
	ClientBusy    float64 `json:"client_busy"`    // the client hosts alone, of the endpoints' CPUs
	RadiusBusy    float64 `json:"radius_busy"`    // programs of the server alone, of the endpoints' CPUs
	OtherBusy     float64 `json:"other_busy"`     // by programs outside the lab, of all CPUs, by /proc/stat
	// Limit is what limited the phase's speed: device, generator or radius (its CPU was full), waiting (no CPU was full),
	// or rate (the rate at which clients arrive).
	Limit string `json:"limit"`

	// Ms has one value a client, in the order of their numbers: the time from its turn until it succeeded or gave up, ms.
	Ms     []float64 `json:"ms"`
	GaveUp []int     `json:"gave_up,omitempty"` // places in `ms`, from 0, of clients that gave up
}

// What limited the speed of a phase.
const (
	LimitRate      = "rate"      // only the rate at which clients arrive
	LimitDevice    = "device"    // the router's CPU was full
	LimitGenerator = "generator" // the endpoints' CPU was full, mostly of clients
	LimitRadius    = "radius"    // the endpoints' CPU was full, mostly of the RADIUS server
	LimitWaiting   = "waiting"   // no CPU was full: the device waited for something
)

// ThroughMs returns the times of the clients that got through, ms, ascending.
func (p Phase) ThroughMs() []float64 {
	gaveUp := map[int]bool{}
	for _, i := range p.GaveUp {
		gaveUp[i] = true
	}
	var list []float64
	for i, ms := range p.Ms {
		if !gaveUp[i] {
			list = append(list, ms)
		}
	}
	slices.Sort(list)
	return list
}
