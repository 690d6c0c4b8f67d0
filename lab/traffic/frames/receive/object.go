package receive

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject returns an error if the embedded eBPF program does not fit this program's architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"cpus": programsCpu{}, "streams": programsStream{}, "seen": uint64(0)})
}
