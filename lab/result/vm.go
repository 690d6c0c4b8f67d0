package result

// Accelerators of virtual machines.
const (
	KVM = "kvm" // the machine's CPU runs the guest
	TCG = "tcg" // QEMU emulates one: only ratios within a run mean something
)

// EmulatedMark stands beside every figure of an emulated CPU. There the costs of instructions have other proportions
// than on a real CPU, and they may change with each boot.
const EmulatedMark = "relative, emulated CPU"

// VM is the virtual machine in which a lab ran.
type VM struct {
	Kernel      string `json:"kernel"`      // as it was asked for: "debian", a path
	Release     string `json:"release"`     // uname release
	Accelerator string `json:"accelerator"` // KVM or TCG
	CPU         string `json:"cpu"`         // what the guest sees, /proc/cpuinfo
	MemoryMiB   int    `json:"memory_mib"`  // the guest's
}

// Mark returns EmulatedMark if the CPU is emulated. Otherwise, and without a virtual machine, it returns "". Everything
// that shows figures of a run must show the mark too.
func (m *VM) Mark() string {
	if m != nil && m.Accelerator == TCG {
		return EmulatedMark
	}
	return ""
}

// String names accelerator and kernel, after the mark if there is one: "virtual machine (KVM), Linux 6.1.0-56-amd64".
func (m *VM) String() string {
	switch {
	case m == nil:
		return ""
	case m.Mark() != "":
		return m.Mark() + " (QEMU TCG), Linux " + m.Release
	case m.Accelerator == KVM:
		return "virtual machine (KVM), Linux " + m.Release
	}
	return "virtual machine (" + m.Accelerator + "), Linux " + m.Release
}
