package machine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Memory is a line or two of /proc/meminfo, KiB.
type Memory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // what programs can still have without swapping
	// Taken is all that is not free and no copy of a file: of programs, and of the
	// kernel, whose sockets, namespaces and tables are on no program's account. Slabs that
	// it could give back count as taken: those of sockets it cannot.
	Taken int64 `json:"taken"`
}

// readMemory reads the machine's memory: that of all programs and namespaces.
func readMemory() (m Memory, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	return ParseMeminfo(bytes.NewReader(text))
}

// ParseMeminfo reads the text of /proc/meminfo.
func ParseMeminfo(r io.Reader) (Memory, error) {
	kib := map[string]int64{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, rest, _ := strings.Cut(sc.Text(), ":")
		f := strings.Fields(rest)
		if len(f) == 0 {
			continue
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("/proc/meminfo: %s: %w", name, err)
		}
		kib[name] = n
	}
	if err := sc.Err(); err != nil {
		return Memory{}, fmt.Errorf("/proc/meminfo: %w", err)
	}
	if kib["MemTotal"] == 0 {
		return Memory{}, errors.New("/proc/meminfo: no MemTotal")
	}
	// What is in memory file systems is among the cached, and nowhere else.
	files := kib["Buffers"] + kib["Cached"] - kib["Shmem"]
	return Memory{Total: kib["MemTotal"], Available: kib["MemAvailable"], Taken: kib["MemTotal"] - kib["MemFree"] - files}, nil
}
