package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Load is how much of a machine is taken at one moment.
type Load struct {
	Memory Memory `json:"memory"`
	// NeighbourOverflows is how often an address could not be resolved since the machine
	// was started because its table of neighbours was full. The table and its limit
	// (gc_thresh3) are one for all network namespaces together; only the machine's own one
	// shows the count, elsewhere it is 0.
	NeighbourOverflows int64 `json:"neighbour_overflows"`
}

// Memory is the machine's, of all programs and namespaces, KiB.
type Memory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // what programs can still have without swapping
	// Taken is all that is neither free nor a copy of a file: of programs, and of the
	// kernel, whose sockets, namespaces and tables belong to no program. Slabs that the
	// kernel could give back count as taken, because it cannot give back those of sockets.
	Taken int64 `json:"taken"`
}

// ReadLoad reads it on the machine this process runs on.
func ReadLoad() (l Load, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return l, err
	}
	if l.Memory, err = parseMeminfo(string(text)); err != nil {
		return l, err
	}
	text, err = os.ReadFile("/proc/net/stat/arp_cache")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	l.NeighbourOverflows, err = parseNeighbourStat(string(text))
	return l, err
}

// parseMeminfo reads the text of /proc/meminfo.
func parseMeminfo(text string) (Memory, error) {
	kib, err := meter.ParseSizes("/proc/meminfo", text, "MemTotal")
	if err != nil {
		return Memory{}, err
	}
	// What is in memory file systems counts as cached, and nowhere else.
	files := kib["Buffers"] + kib["Cached"] - kib["Shmem"]
	return Memory{Total: kib["MemTotal"], Available: kib["MemAvailable"], Taken: kib["MemTotal"] - kib["MemFree"] - files},
		nil
}

// parseNeighbourStat sums the column table_fulls over the CPUs, one a line in
// hexadecimal. Kernels that do not count these have no such column.
func parseNeighbourStat(text string) (sum int64, err error) {
	heading, cpus, _ := strings.Cut(text, "\n")
	column := slices.Index(strings.Fields(heading), "table_fulls")
	if column < 0 {
		return 0, nil
	}
	for line := range strings.Lines(cpus) {
		f := strings.Fields(line)
		if column >= len(f) {
			return 0, fmt.Errorf("arp_cache: a line of %d fields, want more than %d", len(f), column)
		}
		v, err := strconv.ParseInt(f[column], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("arp_cache: %w", err)
		}
		sum += v
	}
	return sum, nil
}
