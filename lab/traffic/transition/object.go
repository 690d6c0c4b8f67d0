package transition

import "github.com/gateweigh/gateweigh/lab/layout"

// CheckObject reports what is wrong with the program that this program carries for its architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, nil) // the type of its events is generated with the program
}
