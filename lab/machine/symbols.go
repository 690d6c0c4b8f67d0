package machine

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

const kernelSymbols = "proc/kallsyms"

// HiddenSymbols says why this process cannot see where the kernel's functions are, by which perf names them, and what
// to set; empty: it can, or the kernel has no list.
func HiddenSymbols() string { return files{os.DirFS("/")}.hiddenSymbols() }

func (s files) hiddenSymbols() string {
	f, err := s.fsys.Open(kernelSymbols)
	if err != nil {
		return "" // a kernel without the list; perf may have others
	}
	defer f.Close()
	seen := false
	for lines := bufio.NewScanner(f); lines.Scan(); seen = true {
		address, _, _ := strings.Cut(lines.Text(), " ")
		if strings.Trim(address, "0") != "" { // the first ones of some kernels are at 0
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
