package dut

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// LinksOf is experiment.Catalogue.Links. A device that is not known here has usual links.
func LinksOf(e *experiment.Experiment, name string) string {
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
