package machine

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// kernelSymbols is the file with the addresses and names of the kernel's functions.
const kernelSymbols = "proc/kallsyms"

// HiddenSymbols tells why this process cannot read the addresses of the kernel's functions, which perf needs to name
// them, and what to do about it. It is empty if the process can, or if the kernel has no list of them.
func HiddenSymbols() string { return files{os.DirFS("/")}.hiddenSymbols() }

// hiddenSymbols is HiddenSymbols by a machine's files. The kernel hides addresses by showing each as 0.
func (s files) hiddenSymbols() string {
	f, err := s.fsys.Open(kernelSymbols)
	if err != nil {
		return "" // a kernel without the list: perf may have other sources
	}
	defer f.Close()
	seen := false
	for lines := bufio.NewScanner(f); lines.Scan(); seen = true {
		address, _, _ := strings.Cut(lines.Text(), " ")
		if strings.Trim(address, "0") != "" { // some kernels truly have functions at 0, so one other address is enough
			return ""
		}
	}
	if !seen {
		return ""
	}
	set := "sudo sysctl kernel.kptr_restrict=1 shows them to root"
	if level := s.text("/proc/sys/kernel/kptr_restrict"); level != "2" {
		set = fmt.Sprintf("kernel.kptr_restrict is %s, so run as root with CAP_SYSLOG (docker run --cap-add SYSLOG)", level)
	}
	return "the kernel hides where its functions are, so none of them has a name: all addresses of /proc/kallsyms are 0: " +
		set
}
