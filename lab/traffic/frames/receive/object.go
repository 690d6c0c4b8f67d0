package receive

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject reports what is wrong with the program that this program carries for its architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"cpus": programsCpu{}, "streams": programsStream{}, "seen": uint64(0)})
}
