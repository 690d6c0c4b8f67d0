package sink

import (
	"fmt"
	"os"
	"strings"
)

// enoughMemory refuses a buffer that takes more than half of what the machine has left: the kernel would look for
// it block by block, and end other programs for it.
func enoughMemory(kib int) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // then the kernel judges
	}
	return fits(kib, string(text))
}

// fits judges by /proc/meminfo.
func fits(kib int, meminfo string) error {
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
