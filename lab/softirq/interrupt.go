package softirq

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// InterruptsOf returns the numbers of the interrupts of an interface's device, sorted, and their names by number. A
// virtual interface has none.
func InterruptsOf(ifname string) (numbers []int, names map[int]string) {
	return interruptsOf("/", ifname)
}

// interruptsOf is InterruptsOf with /proc and /sys below the folder root. The kernel lists the interrupts of a PCI
// device in the device's folder, and those of a virtio device in the folder of the PCI device that carries it
// (msi_irqs). A device without message-signalled interrupts has one number, in the file irq. Where there is none of
// these, the driver has named the interrupts after the interface.
func interruptsOf(root, ifname string) (numbers []int, names map[int]string) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/interrupts")) // an error: the names stay unknown
	all := interruptNames(string(text))
	device, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/net", ifname, "device"))
	if err != nil {
		return nil, nil
	}
	for _, folder := range []string{device, filepath.Dir(device)} {
		entries, _ := os.ReadDir(filepath.Join(folder, "msi_irqs")) // an error: the folder does not exist
		for _, e := range entries {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) > 0 {
			break
		}
	}
	if line, err := os.ReadFile(filepath.Join(device, "irq")); err == nil && len(numbers) == 0 {
		if n, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if all[n] == ifname || strings.HasPrefix(all[n], ifname+"-") {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	names = map[int]string{}
	for _, n := range numbers {
		names[n] = all[n]
	}
	return numbers, names
}

// interruptNames returns the names of interrupts by their numbers. text is that of /proc/interrupts.
func interruptNames(text string) map[int]string {
	names := map[int]string{}
	cpus := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if cpus == 0 { // the first line is a heading with a column for each CPU
			cpus = len(fields)
			continue
		}
		if len(fields) < cpus+2 {
			continue // lines such as NMI, about interrupts of the CPUs themselves, may have counts alone
		}
		if number, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":")); err == nil {
			names[number] = fields[len(fields)-1]
		}
	}
	return names
}
