// Command gateweigh-agent is the agent alone, without the lab: a small static program for boxes that are measured.
// It is what "gateweigh agent" is, of the same build.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// version is set by the linker.
var version = "devel"

func main() {
	machine.WithSbin()
	agent.Version = version
	agent.RunAs(os.Args)
	if len(os.Args) > 1 {
		agent.RunAs(slices.Insert(slices.Clone(os.Args), 1, agent.Subcommand))
	}
	fmt.Fprintf(os.Stderr, "gateweigh-agent %s: the lab starts it; by hand: gateweigh-agent --self-test\n", version)
	os.Exit(2)
}
