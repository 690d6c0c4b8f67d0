package traffic

// Names of kinds of traffic.
const (
	KindStreams = "streams"
	KindIperf3  = "iperf3"
	KindFrames  = "frames"
)

// Distributions of the gaps between frames, or between bursts of frames.
const (
	GapsScattered = "scattered" // intervals of constant length, with each burst at a random moment in its interval
	GapsConstant  = "constant"
	GapsPoisson   = "poisson"
	GapsCaptured  = "captured" // as in the capture file that the frame sizes come from, scaled to the load's rate
)

// Kind has the traits of one kind of traffic that the rest of the lab needs. Package agent starts and stops it.
type Kind struct {
	Name string
	// Counts is true when both ends count the payload of each stream. For other kinds the delivered payload is computed
	// from the counters of the router's link, which also carries other packets.
	Counts bool
	Both   bool // half of a load can be sent in each direction at the same time
	// Bursts is true when streams take turns and each sends one whole burst at its turn.
	Bursts bool
	// Timer is true when a timer of this program can pace it instead of the socket.
	Timer bool
	// Program is the program that runs at both ends for each client; empty: the agents send themselves.
	Program string
	// Frames is true when whole frames of chosen sizes are sent, at a rate that does not depend on what arrives.
	Frames bool
}

// kinds is the table of kinds of traffic. The first is the default of an experiment.
var kinds = []Kind{
	{Name: KindStreams, Counts: true, Both: true, Bursts: true},
	{Name: KindIperf3, Timer: true, Program: "iperf3"},
	{Name: KindFrames, Counts: true, Both: true, Frames: true},
}

// KindOf returns the kind with a name. For an unknown name it returns the zero Kind.
func KindOf(name string) (kind Kind) {
	for _, k := range kinds {
		if k.Name == name {
			kind = k
		}
	}
	return kind
}

// Kinds lists the names of the kinds for which match returns true, or of all kinds when match is nil. The default kind
// is the first.
func Kinds(match func(Kind) bool) (names []string) {
	for _, k := range kinds {
		if match == nil || match(k) {
			names = append(names, k.Name)
		}
	}
	return names
}
