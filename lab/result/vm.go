package result

// Accelerators of virtual machines.
const (
	KVM = "kvm" // the machine's CPU runs the guest
	TCG = "tcg" // QEMU emulates one: only ratios within a run mean something
)

// EmulatedMark goes with every figure that was taken on an emulated CPU: instructions cost other multiples there than
// on a real one, and another boot may cost differently.
const EmulatedMark = "relative, emulated CPU"

// VM is the virtual machine that a lab ran in.
type VM struct {
	Kernel      string `json:"kernel"`      // as it was asked for: "debian", a path
	Release     string `json:"release"`     // uname release
	Accelerator string `json:"accelerator"` // KVM or TCG
	CPU         string `json:"cpu"`         // what the guest sees, /proc/cpuinfo
	MemoryMiB   int    `json:"memory_mib"`  // the guest's
}

// Mark is EmulatedMark where the CPU is emulated, and empty elsewhere, also without a virtual machine. All that shows
// figures of a run asks it, of the run's environment or summary.
func (m *VM) Mark() string {
	if m != nil && m.Accelerator == TCG {
		return EmulatedMark
	}
	return ""
}

// String names kernel and accelerator, and begins with the mark: "virtual machine (KVM), Linux 6.1.0-56-amd64".
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
