package cost

import (
	"maps"
	"reflect"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Sides are the figures of a trial: of a window of the DUT, and of one of the clean router. A trial of an interleaved
// round has one side, which is always in the field DUT: a device, or the round's clean router.
type Sides struct {
	DUT   Measurement `json:"dut"`            // the device's side
	Clean Measurement `json:"clean,omitzero"` // the clean router's
}

// lone reports whether there is no second side.
func (s *Sides) lone() bool { return reflect.ValueOf(s.Clean).IsZero() }

// SidesOf returns a trial's figures; the caller may change them. It panics if the trial was read without the measure's
// kinds of record.
func SidesOf(t result.Trial) *Sides { return t.Figures.(*Sides) }

// attempt is a trial while it is judged.
type attempt struct {
	result.Trial
	Sides
}

// record returns the trial with its figures.
func (a attempt) record() result.Trial {
	a.Figures = &a.Sides
	return a.Trial
}

// Stay has the figures of a whole block: of its clients, of the device between the windows, and of guests.
type Stay struct {
	LeaseSeconds float64 `json:"lease_seconds"` // all clients of the DUT's lab: created and leased
	LoginSeconds float64 `json:"login_seconds"` // all clients of the DUT's lab: logged in
	// LoginMs has one value a client; none where clients are admitted on the router, or need no admission.
	LoginMs []float64 `json:"login_ms,omitempty"`
	// Addresses says who gives clients their addresses: device, lab (the lab's own DHCP server), or static.
	Addresses      string `json:"addresses,omitempty"`
	CleanAddresses string `json:"clean_addresses,omitempty"` // the same in the clean router's lab
	Leased         int    `json:"leased,omitempty"`          // clients of the DUT's lab with an address
	// LoggedIn is the number of clients that the DUT's portal let in; 0 where none has to log in.
	LoggedIn   int       `json:"logged_in,omitempty"`
	DaemonCore float64   `json:"daemon_core"`     // DUT processes' CPU over the stretches, cores
	Stretches  []Stretch `json:"stretches"`       // the time under each cell's load
	Churn      *Churn    `json:"churn,omitempty"` // of blocks with guests
	// HousekeepingSeconds is the period of work that the DUT does without being asked; absent if no such work is known.
	HousekeepingSeconds float64 `json:"housekeeping_seconds,omitempty"`
}

// StayOf returns a block's figures; the caller may change them. They are empty if the block failed before it had any.
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
	PacketsUp     int64   `json:"packets_up"`     // packets that the router sent towards the server
	PacketsDown   int64   `json:"packets_down"`   // packets that the router sent towards the clients
	Drops         int64   `json:"drops"`          // link and queue drops on the router's links

	// AggregationFactor is frames on the wire per packet that the IP layer saw; 0: the IP layer saw (almost) none.
	AggregationFactor float64 `json:"aggregation_factor"`
	// SegmentsPerBurst is frames per buffer that the senders' IP layer sent; over UDP it is datagrams per burst, as the
	// generators count them. 0: not known.
	SegmentsPerBurst float64 `json:"segments_per_burst"`
	PacketsPerWakeup float64 `json:"packets_per_wakeup"` // frames per time slice of the router's NAPI threads
	RetransmitRatio  float64 `json:"retransmit_ratio"`   // TCP segments sent again / sent
	GeneratorCPU     float64 `json:"generator_cpu"`      // busiest traffic thread, cores

	// Datagrams are the counts of the lab's own generator over UDP; nil for other loads.
	Datagrams *Datagrams `json:"datagrams,omitempty"`

	// streams or traffic programs that had ended early by the end of the window
	Broken      int    `json:"broken"`
	BrokenError string `json:"broken_error,omitempty"` // of the first of them

	RTT result.RTT `json:"rtt_us"` // under load, by 100 probes a second

	PSSMiB float64 `json:"pss_mib"` // memory of the DUT's processes

	// Metrics are further figures by name. The summary's metrics are computed from them too.
	Metrics map[string]float64 `json:"metrics,omitempty"`

	Machine  result.Machine   `json:"machine"`   // /proc/stat over the same window
	RoleNs   map[string]int64 `json:"role_ns"`   // exact on-CPU ns by role: "router", "client", "server", "agents"
	MeterNs  int64            `json:"meter_ns"`  // what measuring the router cost, ns
	ThreadNs map[string]int64 `json:"thread_ns"` // router threads and processes by name
}

// Datagrams are what became of UDP's datagrams in a window, over all clients.
type Datagrams struct {
	Sent      int64 `json:"sent"`      // by all clients, and by the server where it sends
	Received  int64 `json:"received"`  // at the other end
	Lost      int64 `json:"lost"`      // missing below the highest number of their stream that came
	Reordered int64 `json:"reordered"` // came after a higher number of their stream, or twice
}

// LossRatio is lost / (received + lost); 0 without datagrams.
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

// Stretch is the time that a block spent under one load: its warm-up, all windows, and the time between them. The
// stretch of the block's first load begins after the warm-up.
type Stretch struct {
	OfferedMbps float64 `json:"offered_mbps"` // the load
	Seconds     float64 `json:"seconds"`      // of the traffic, with all windows
	ProcessNs   int64   `json:"process_ns"`   // DUT processes and what they started
	// Delays of streams, at the device and at the clean router; absent for other kinds of traffic.
	Connect        Delays `json:"connect_us,omitzero"`          // from making a stream's socket to its connection
	FirstByte      Delays `json:"first_byte_us,omitzero"`       // from then to the first byte of the server's answer
	CleanConnect   Delays `json:"clean_connect_us,omitzero"`    // the clean router's
	CleanFirstByte Delays `json:"clean_first_byte_us,omitzero"` // the clean router's
	// Fairness is between the streams, in duet mode; streams only.
	Fairness      Fairness `json:"fairness,omitzero"`
	CleanFairness Fairness `json:"clean_fairness,omitzero"` // the clean router's
	Memory        Memory   `json:"memory,omitzero"`         // when the first window began, in duet mode

	// WarmupSeconds is the experiment's warm-up, or longer if it takes longer until each stream has sent a burst.
	WarmupSeconds float64 `json:"warmup_seconds"`
	// Short has the results of short connections, if the load has some; in solo mode those of all turns together.
	Short      *Short `json:"short,omitempty"`
	CleanShort *Short `json:"clean_short,omitempty"` // the clean router's
}

// Short has the results of short connections. Each carries one answer of the server and ends.
type Short struct {
	PerSecond float64 `json:"per_second"` // connections a second that got their whole answer
	Done      int     `json:"done"`       // connections that got their whole answer
	Failed    int     `json:"failed"`     // connections that failed
	// Missed is the number of connections that were due and not made, because the client hosts were late or had too many
	// open connections.
	Missed     int    `json:"missed"`
	FirstError string `json:"first_error,omitempty"` // of the connections that failed
	Connect    Delays `json:"connect_us"`            // from making the socket to the connection
	FirstByte  Delays `json:"first_byte_us"`         // from the connection to the first byte of the answer
	Whole      Delays `json:"whole_us"`              // from making the socket to the end of the answer
}

// Churn has the results of guests: further clients that come, log in and leave while a block's clients send. The counts
// are of the guests at the DUT.
type Churn struct {
	PerSecond float64 `json:"per_second"` // guests that were to come, a second, on each side of the pair
	Seconds   float64 `json:"seconds"`    // from the first guest's coming to the last one's leaving
	Came      int     `json:"came"`       // guests that came
	In        int     `json:"in"`         // guests that got a lease and logged in
	Gone      int     `json:"gone"`       // guests that logged out, found themselves out, and released their lease
	Missed    int     `json:"missed"`     // guests that were due and did not come, because all guests were there already

	LeaseP50Ms float64         `json:"lease_p50_ms"`       // median of leases
	LeaseP99Ms float64         `json:"lease_p99_ms"`       // 99th percentile
	LoginP50Ms float64         `json:"login_p50_ms"`       // median of logins
	LoginP99Ms float64         `json:"login_p99_ms"`       // 99th percentile
	Failures   []result.Reason `json:"failures,omitempty"` // why guests did not get in

	Before DeviceState `json:"before"` // before the first guest; the clients that send are logged in
	After  DeviceState `json:"after"`  // after the last guest has left
	// SettledSeconds is the time from the last guest's leaving until the DUT's counts were as before. If they never were,
	// it is the time for which they were watched.
	SettledSeconds float64 `json:"settled_seconds"`
}

// Settled reports whether the DUT counts as many sessions, leases and so on as before its guests. It is false if the
// DUT reports no counts.
func (c Churn) Settled() bool {
	return len(c.Before.Counts) > 0 && maps.Equal(c.Before.Counts, c.After.Counts)
}

// DeviceState has the DUT's memory, rules, connections and counts at one moment.
type DeviceState struct {
	PSSMiB    float64        `json:"pss_mib"`    // memory of its processes
	RuleLines int            `json:"rule_lines"` // of nft list ruleset on the router
	Flows     int            `json:"flows"`      // connections its kernel tracks
	Counts    map[string]int `json:"counts"`     // as the DUT reports them: sessions, leases; nil if it reports none
}

// Memory is the memory that both labs of a block use while their streams run.
type Memory struct {
	// MiB is the machine's memory in use, without cached files, less that before the labs were built. It has the hosts,
	// generators, devices, their servers, and the kernel's part of all of them. It also has what other programs of the
	// machine took or freed meanwhile.
	MiB     float64 `json:"mib"`
	Clients int     `json:"clients"` // of both labs together
}

// Fairness compares the payload of a load's streams, counted where they end, from the end of the warm-up to the end of
// the load. If the warm-up was extended until each stream had sent a burst, it is counted too.
type Fairness struct {
	Streams int     `json:"streams"`          // connected
	Broken  int     `json:"broken,omitempty"` // streams that had ended by the end of the load
	Jain    float64 `json:"jain"`             // 1: all alike; 1/n: one of n streams carried everything (DEC-TR-301)
	// Even is the largest possible value of Jain when each stream carries whole bursts.
	Even    float64 `json:"even"`
	MinMbps float64 `json:"min_mbps"` // of the stream that carried least
	MaxMbps float64 `json:"max_mbps"` // of the stream that carried most
}

// Delays are quantiles of the delays of streams or connections, µs. With several traffic generators they are those of
// the slowest one.
type Delays struct {
	P50 float64 `json:"p50"` // median
	P99 float64 `json:"p99"` // 99th percentile
	Max float64 `json:"max"` // the longest
}

// TrialsOf returns trials in the form that package analysis takes, with the figures of both sides.
func TrialsOf(run []result.Trial) []analysis.Trial {
	trials := make([]analysis.Trial, len(run))
	for i, t := range run {
		s := SidesOf(t)
		trials[i] = analysis.Trial{Trial: t, Device: result.ValuesOf(s.DUT), Clean: result.ValuesOf(s.Clean)}
	}
	return trials
}
