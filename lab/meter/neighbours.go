package meter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// NeighbourOverflows is how often an address could not be resolved since the
// machine was started because its neighbour table was full: one table, and one
// limit (gc_thresh3), for all network namespaces together. Only the machine's own
// namespace shows it; elsewhere it is 0.
func NeighbourOverflows() (n int64, err error) {
	err = readProc("/proc/net/stat/arp_cache", func(r io.Reader) (err error) {
		n, err = parseNeighbourStat(r)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// parseNeighbourStat sums the column table_fulls over the CPUs, one a line in
// hexadecimal.
func parseNeighbourStat(r io.Reader) (sum int64, err error) {
	sc := bufio.NewScanner(r)
	column := -1
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if column < 0 {
			for i, name := range f {
				if name == "table_fulls" {
					column = i
				}
			}
			if column < 0 {
				return 0, nil // a kernel that does not count them
			}
			continue
		}
		if column >= len(f) {
			return 0, fmt.Errorf("arp_cache: a line of %d fields, want more than %d", len(f), column)
		}
		v, err := strconv.ParseInt(f[column], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("arp_cache: %w", err)
		}
		sum += v
	}
	return sum, sc.Err()
}
