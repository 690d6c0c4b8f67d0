package sink

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject returns an error when the embedded eBPF object does not have the maps that this package expects.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"sizes": uint64(0), "sockets": uint32(0)})
}
