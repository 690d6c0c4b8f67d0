package machine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// neighbourOverflows is Load.NeighbourOverflows.
func neighbourOverflows() (n int64, err error) {
	text, err := os.ReadFile("/proc/net/stat/arp_cache")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parseNeighbourStat(bytes.NewReader(text))
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
