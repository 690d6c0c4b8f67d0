package sink

import (
	"fmt"
	"os"
	"strings"
)

// checkMemory refuses a buffer that takes more than half of the machine's available memory: the kernel would allocate
// it block by block, and kill other programs for it.
func checkMemory(kib int) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // the kernel decides
	}
	return checkAvailable(kib, string(text))
}

// checkAvailable compares a buffer in KiB with MemAvailable in the text of /proc/meminfo.
func checkAvailable(kib int, meminfo string) error {
	for line := range strings.Lines(meminfo) {
		var available int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &available); n == 1 && kib > available/2 {
			return &configError{fmt.Sprintf(
				"a buffer of %d KiB: more than half of the %d KiB that this machine has left: ask for a smaller one", kib,
				available)}
		}
	}
	return nil
}
