package transition

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject reports what is wrong with the eBPF object embedded in this binary: it has another byte order than this
// machine, or a program without instructions.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	// No map's values need a comparison with a Go type: bpf2go generates the type of events from the C source.
	return layout.Check(spec, nil)
}
