package machine

// Load is how much of a machine is taken at one moment.
type Load struct {
	Memory Memory `json:"memory"`
	// NeighbourOverflows is how often an address could not be resolved since the machine
	// was started because its table of neighbours was full. The table and its limit
	// (gc_thresh3) are one for all network namespaces together; only the machine's own one
	// shows the count, elsewhere it is 0.
	NeighbourOverflows int64 `json:"neighbour_overflows"`
}

// ReadLoad reads it on the machine this process runs on.
func ReadLoad() (l Load, err error) {
	if l.Memory, err = readMemory(); err != nil {
		return l, err
	}
	l.NeighbourOverflows, err = neighbourOverflows()
	return l, err
}
