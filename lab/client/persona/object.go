package persona

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject returns an error where the embedded eBPF programs do not fit this program's architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"personas": programsPersona{}, "personas6": programsPersona{}})
}
