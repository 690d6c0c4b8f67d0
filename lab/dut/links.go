package dut

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// LinkNeeds describes what a device needs of its lab's links, as text for experiment.Catalogue.Links: "no aggregation",
// for instance. It is empty for a device that takes the usual links, and for an unknown name. Devices with the same
// text can share the clean router that they are compared with.
func LinkNeeds(e *experiment.Experiment, name string) string {
	d, err := New(name, 1, e)
	if err != nil {
		return ""
	}
	var needs []string
	if d.Traits().NoAggregation {
		needs = append(needs, "no aggregation")
	}
	if d.Traits().NoTxChecksum {
		needs = append(needs, "no checksums by the link")
	}
	if t, ok := d.(Encapsulating); ok {
		needs = append(needs, fmt.Sprintf("packets of %d bytes", t.MTU()))
	}
	return strings.Join(needs, ", ")
}
