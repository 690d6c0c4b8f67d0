package cost

import (
	"maps"
	"reflect"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Sides are the figures of a trial: of a window of the DUT and one of the clean router. A trial of an interleaved round
// has the first alone, also of the round's clean router.
type Sides struct {
	DUT   Measurement `json:"dut"`            // the device's side
	Clean Measurement `json:"clean,omitzero"` // the clean router's
}

// lone reports whether there is no second side.
func (s *Sides) lone() bool { return reflect.ValueOf(s.Clean).IsZero() }

// SidesOf are a trial's figures, which may be changed. It panics where the trial was read without the measure's kinds of
// record.
func SidesOf(t result.Trial) *Sides { return t.Figures.(*Sides) }

// attempt is a trial while it is judged.
type attempt struct {
	result.Trial
	Sides
}

// record is the trial with its figures.
func (a attempt) record() result.Trial {
	a.Figures = &a.Sides
	return a.Trial
}

// Stay is what is known of a whole block: of its clients, of the device while nothing was measured, and of guests.
type Stay struct {
	LeaseSeconds float64 `json:"lease_seconds"` // all clients of the DUT's lab: created and leased
	LoginSeconds float64 `json:"login_seconds"` // all clients of the DUT's lab: logged in
	// LoginMs is one value a client; none where clients are admitted on the router, or not at all.
	LoginMs []float64 `json:"login_ms,omitempty"`
	// Addresses is where clients have theirs from: device, lab (the lab's own DHCP server), static.
	Addresses      string `json:"addresses,omitempty"`
	CleanAddresses string `json:"clean_addresses,omitempty"` // the same in the clean router's lab
	Leased         int    `json:"leased,omitempty"`          // clients of the DUT's lab with an address
	// those the DUT's portal let in; 0 where none has to log in
	LoggedIn   int       `json:"logged_in,omitempty"`
	DaemonCore float64   `json:"daemon_core"`     // DUT processes' CPU over the stretches, cores
	Stretches  []Stretch `json:"stretches"`       // the same, cell by cell
	Churn      *Churn    `json:"churn,omitempty"` // of blocks with guests
	// HousekeepingSeconds is how often the DUT works without being asked; absent
	// when it is not known to.
	HousekeepingSeconds float64 `json:"housekeeping_seconds,omitempty"`
}

// StayOf is a block's figures, which may be changed; zero of a block that has failed before there were any.
func StayOf(b result.Block) *Stay {
	if s, is := b.Figures.(*Stay); is {
		return s
	}
	return &Stay{}
}

// Measurement is what one router cost and delivered in one window.
type Measurement struct {
	Seconds float64 `json:"seconds"` // length of the window by the router's monotonic clock

	// Router CPU, exact on-CPU nanoseconds.
	NAPINs    int64 `json:"napi_ns"`    // threaded-NAPI kernel threads of the router's links
	ProcessNs int64 `json:"process_ns"` // all threads of the DUT's processes, and what they started
	WaitNs    int64 `json:"wait_ns"`    // run-queue wait of the same threads

	// Traffic in the direction of the data, at the router's outgoing link.
	LinkMbps      float64 `json:"link_mbps"`      // frames' bytes, as study 1's sampler counts
	DeliveredMbps float64 `json:"delivered_mbps"` // payload only
	OfferedMbps   float64 `json:"offered_mbps"`   // payload the generator was asked for
	Packets       int64   `json:"packets"`        // packets the router sent on all links, both directions
	PacketsUp     int64   `json:"packets_up"`     // of those: towards the server
	PacketsDown   int64   `json:"packets_down"`   // towards the clients
	Drops         int64   `json:"drops"`          // link and queue drops on the router's links

	// frames on the wire per packet the IP layer saw; 0: it saw none to speak of
	AggregationFactor float64 `json:"aggregation_factor"`
	// frames per buffer the senders' IP layer emitted; of UDP datagrams a burst, by the generators' own count; 0: not
	// known
	SegmentsPerBurst float64 `json:"segments_per_burst"`
	PacketsPerWakeup float64 `json:"packets_per_wakeup"` // frames per time slice of the router's NAPI threads
	RetransmitRatio  float64 `json:"retransmit_ratio"`   // TCP segments sent again / sent
	GeneratorCPU     float64 `json:"generator_cpu"`      // busiest traffic thread, cores

	// Datagrams are of the lab's generator over UDP, nil otherwise.
	Datagrams *Datagrams `json:"datagrams,omitempty"`

	// streams or traffic programs that had ended early by the end of the window
	Broken      int    `json:"broken"`
	BrokenError string `json:"broken_error,omitempty"` // of the first of them

	RTT result.RTT `json:"rtt_us"` // under load, by 100 probes a second

	PSSMiB float64 `json:"pss_mib"` // memory of the DUT's processes

	// Metrics are further figures by name: those that metrics are read from.
	Metrics map[string]float64 `json:"metrics,omitempty"`

	Machine  result.Machine   `json:"machine"`   // /proc/stat over the same window
	RoleNs   map[string]int64 `json:"role_ns"`   // exact on-CPU ns by role: "router", "client", "server", "agents"
	MeterNs  int64            `json:"meter_ns"`  // what measuring the router cost, ns
	ThreadNs map[string]int64 `json:"thread_ns"` // router threads and processes by name
}

// Datagrams are what became of UDP's datagrams in a window, over all clients.
type Datagrams struct {
	Sent      int64 `json:"sent"`      // by all clients and, downwards, the server
	Received  int64 `json:"received"`  // at the other end
	Lost      int64 `json:"lost"`      // missing below the highest number of their stream that came
	Reordered int64 `json:"reordered"` // came after a higher number of their stream, or twice
}

// LossRatio is lost / (received + lost); 0 where there were none.
func (d Datagrams) LossRatio() float64 {
	return float64(d.Lost) / float64(max(1, d.Received+d.Lost))
}

// LossRatio is the loss ratio of the datagrams, 0 over TCP.
func (m Measurement) LossRatio() float64 {
	if m.Datagrams == nil {
		return 0
	}
	return m.Datagrams.LossRatio()
}

// CPUCorePct is the router's CPU as a percentage of one core.
func (m Measurement) CPUCorePct() float64 {
	if m.Seconds <= 0 {
		return 0
	}
	return float64(m.NAPINs+m.ProcessNs) / 1e7 / m.Seconds
}

// Stretch is the time a block spent under one load: warm-up (but the first load's), all windows, and
// what lay between them.
type Stretch struct {
	OfferedMbps float64 `json:"offered_mbps"` // the load
	Seconds     float64 `json:"seconds"`      // of the traffic, with all windows
	ProcessNs   int64   `json:"process_ns"`   // DUT processes and what they started
	// Of streams only, and beside them the clean router's.
	Connect        Delays `json:"connect_us,omitzero"`          // from making a stream's socket to its connection
	FirstByte      Delays `json:"first_byte_us,omitzero"`       // from then to the first byte of the server's answer
	CleanConnect   Delays `json:"clean_connect_us,omitzero"`    // the clean router's
	CleanFirstByte Delays `json:"clean_first_byte_us,omitzero"` // the clean router's
	// Fairness is between the streams, in duet mode; streams only.
	Fairness      Fairness `json:"fairness,omitzero"`
	CleanFairness Fairness `json:"clean_fairness,omitzero"` // the clean router's
	Memory        Memory   `json:"memory,omitzero"`         // when the first window began, in duet mode

	WarmupSeconds float64 `json:"warmup_seconds"` // as asked for, or longer: a turn of all streams
	// of loads with such connections; in solo mode of all turns together
	Short      *Short `json:"short,omitempty"`
	CleanShort *Short `json:"clean_short,omitempty"` // the clean router's
}

// Short is what became of the connections that carry one answer and end.
type Short struct {
	PerSecond float64 `json:"per_second"` // that had their whole answer
	Done      int     `json:"done"`       // connections that had it
	Failed    int     `json:"failed"`     // connections
	// Missed were due when the client hosts were late or had too many open.
	Missed     int    `json:"missed"`
	FirstError string `json:"first_error,omitempty"` // of those that failed
	Connect    Delays `json:"connect_us"`            // until the connection
	FirstByte  Delays `json:"first_byte_us"`         // from the connection on
	Whole      Delays `json:"whole_us"`              // from beginning to end
}

// Churn is what became of guests that came and went while a block's clients sent.
type Churn struct {
	PerSecond float64 `json:"per_second"` // that were to come, on each side of the pair
	Seconds   float64 `json:"seconds"`    // from the first to the last that left
	// At the DUT.
	Came   int `json:"came"`   // guests
	In     int `json:"in"`     // leased and logged in
	Gone   int `json:"gone"`   // of those: logged out, seen to be out, released
	Missed int `json:"missed"` // due when all guests were there already

	LeaseP50Ms float64         `json:"lease_p50_ms"`       // median of leases
	LeaseP99Ms float64         `json:"lease_p99_ms"`       // 99th percentile
	LoginP50Ms float64         `json:"login_p50_ms"`       // median of logins
	LoginP99Ms float64         `json:"login_p99_ms"`       // 99th percentile
	Failures   []result.Reason `json:"failures,omitempty"` // why guests did not get in

	Before DeviceState `json:"before"` // with the clients that send admitted
	After  DeviceState `json:"after"`  // the last guest
	// SettledSeconds is from the last that left until the DUT's counts were those of
	// before; when they never were, for how long they were looked at.
	SettledSeconds float64 `json:"settled_seconds"`
}

// Settled reports whether the DUT is known to know as many clients as before: never of
// one that reports no counts.
func (c Churn) Settled() bool {
	return len(c.Before.Counts) > 0 && maps.Equal(c.Before.Counts, c.After.Counts)
}

// DeviceState is what a DUT holds at one moment.
type DeviceState struct {
	PSSMiB    float64        `json:"pss_mib"`    // memory of its processes
	RuleLines int            `json:"rule_lines"` // of nft list ruleset on the router
	Flows     int            `json:"flows"`      // connections its kernel tracks
	Counts    map[string]int `json:"counts"`     // the DUT's own: sessions, leases; nil when it tells none
}

// Memory is what both labs of a block hold while their streams run.
type Memory struct {
	// MiB is by how much more of the machine's memory is taken than before the labs were
	// built, copies of files left out: hosts, generators, devices and their servers, and
	// the kernel's part of all of them. Other programs of the machine are in it too.
	MiB     float64 `json:"mib"`
	Clients int     `json:"clients"` // of both labs together
}

// Fairness is what the streams of a load had each where they end, from the warm-up to
// the end of the load; with the warm-up where that is a turn of all streams and no more.
type Fairness struct {
	Streams int     `json:"streams"`          // connected
	Broken  int     `json:"broken,omitempty"` // of them, that had ended by the end of the load
	Jain    float64 `json:"jain"`             // 1: all alike; 1/n: one of n had everything (DEC-TR-301)
	// Even is the largest Jain there can be when each stream carries whole bursts.
	Even    float64 `json:"even"`
	MinMbps float64 `json:"min_mbps"` // of the stream that had least
	MaxMbps float64 `json:"max_mbps"` // of the one that had most
}

// Delays are how long streams took, microseconds. Of several generators the slowest
// stands for all.
type Delays struct {
	P50 float64 `json:"p50"` // median
	P99 float64 `json:"p99"` // 99th percentile
	Max float64 `json:"max"` // the longest
}

// TrialsOf are trials with their figures.
func TrialsOf(run []result.Trial) []analysis.Trial {
	trials := make([]analysis.Trial, len(run))
	for i, t := range run {
		s := SidesOf(t)
		trials[i] = analysis.Trial{Trial: t, Device: result.ValuesOf(s.DUT), Clean: result.ValuesOf(s.Clean)}
	}
	return trials
}
