package floor

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject reports what is wrong with the programs that this program carries for its architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"server": programsHop{}, "clients": programsHop{}})
}
