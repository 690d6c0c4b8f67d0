package softirq

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// InterruptsOf are the numbers of the interrupts of an interface's device, with their names; none of one that is no
// hardware.
func InterruptsOf(ifname string) (numbers []int, names map[int]string) {
	return interruptsOf("/", ifname)
}

// interruptsOf is InterruptsOf below another root. Of a device on PCI the kernel lists them in its folder, of a virtual
// one (virtio) in the folder of the PCI device around it, and of one without messages there is one number. Other
// drivers name their interrupts after the interface.
func interruptsOf(root, ifname string) (numbers []int, names map[int]string) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/interrupts")) // none: no names
	all := interruptNames(string(text))
	device, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/net", ifname, "device"))
	if err != nil {
		return nil, nil
	}
	for _, folder := range []string{device, filepath.Dir(device)} {
		entries, _ := os.ReadDir(filepath.Join(folder, "msi_irqs")) // there is none: another way follows
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

// interruptNames are the names of interrupts by their numbers, of the text of /proc/interrupts.
func interruptNames(printed string) map[int]string {
	names := map[int]string{}
	cpus := 0
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if cpus == 0 { // the heading has a column for each CPU
			cpus = len(fields)
			continue
		}
		if len(fields) < cpus+2 {
			continue // those of the CPUs themselves have no more than their counts
		}
		if number, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":")); err == nil {
			names[number] = fields[len(fields)-1]
		}
	}
	return names
}
