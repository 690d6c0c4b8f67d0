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
	if available, ok := availableKiB(string(text)); ok && kib > available/2 {
		return &configError{fmt.Sprintf("a buffer of %d KiB: more than half of the %d KiB that this machine has left: ask for a smaller one", kib, available)}
	}
	return nil
}

// availableKiB reads MemAvailable out of /proc/meminfo.
func availableKiB(meminfo string) (kib int, ok bool) {
	for line := range strings.Lines(meminfo) {
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib, true
		}
	}
	return 0, false
}
