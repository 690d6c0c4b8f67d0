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

// Load is how much of a machine's memory and neighbour table is taken at one moment.
type Load struct {
	Memory Memory `json:"memory"`
	// NeighbourOverflows is how often since the machine's start an address could not be resolved
	// because the neighbour table was full. All network namespaces share the table and its
	// limit (gc_thresh3), but only the machine's own namespace shows the count. In others it is 0.
	NeighbourOverflows int64 `json:"neighbour_overflows"`
}

// Memory is the memory of a machine, with all programs and namespaces, KiB.
type Memory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // for programs, without swapping
	// Taken is the memory that is neither free nor a copy of a file. It includes the kernel's,
	// whose sockets, namespaces and tables belong to no program. Slabs that the kernel calls
	// reclaimable count as taken, because those of sockets cannot be reclaimed while they are open.
	Taken int64 `json:"taken"`
}

// ReadLoad reads the load of the machine that this process runs on.
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
	// Cached includes the files of memory file systems (Shmem), which are no copies.
	files := kib["Buffers"] + kib["Cached"] - kib["Shmem"]
	return Memory{Total: kib["MemTotal"], Available: kib["MemAvailable"], Taken: kib["MemTotal"] - kib["MemFree"] - files},
		nil
}

// parseNeighbourStat adds up the column table_fulls, which has a hexadecimal number for each CPU.
// It returns 0 for a kernel without this column.
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
