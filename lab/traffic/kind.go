package traffic

// Names of kinds of traffic.
const (
	KindStreams = "streams"
	KindIperf3  = "iperf3"
	KindFrames  = "frames"
)

// Gaps between frames, or between bursts of them.
const (
	GapsScattered = "scattered" // constant, and each burst at a random place of its own
	GapsConstant  = "constant"
	GapsPoisson   = "poisson"
	GapsCaptured  = "captured" // those of the capture that the sizes are of, at the speed that the load takes
)

// Kind has the traits of one kind of traffic that the rest of the lab needs. How a kind is
// started and stopped is in the agent.
type Kind struct {
	Name string
	// Counts is that both ends count the payload of each stream. What other kinds deliver
	// is read off the router's link, which carries all else too.
	Counts bool
	Both   bool // can send half of a load each way
	// Bursts: streams take turns, and each sends one whole burst at its turn.
	Bursts bool
	// Timer: a program's own timer can pace it instead of the socket.
	Timer bool
	// Program is what runs at both ends for each client; empty: the agents send themselves.
	Program string
	// Frames is that whole frames of chosen sizes are sent, at a rate that does not depend on what arrives.
	Frames bool
}

// kinds is the table of kinds of traffic. The first is the default of an experiment.
var kinds = []Kind{
	{Name: KindStreams, Counts: true, Both: true, Bursts: true},
	{Name: KindIperf3, Timer: true, Program: "iperf3"},
	{Name: KindFrames, Counts: true, Both: true, Frames: true},
}

// KindOf is the kind of a name; for an unknown name its Name is empty.
func KindOf(name string) (kind Kind) {
	for _, k := range kinds {
		if k.Name == name {
			kind = k
		}
	}
	return kind
}

// Kinds lists the names of the kinds for which has is true, of all when it is nil, the
// default kind first.
func Kinds(has func(Kind) bool) (names []string) {
	for _, k := range kinds {
		if has == nil || has(k) {
			names = append(names, k.Name)
		}
	}
	return names
}
