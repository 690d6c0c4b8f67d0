package compare

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestLinkSettings: runs whose links were set differently say in what; of a run that does not tell nothing is said.
func TestLinkSettings(t *testing.T) {
	run := func(rings int, cpu, governor string) result.Run {
		return result.Run{Dir: t.TempDir(), Environment: result.Environment{
			Governors: []string{governor}, Ports: map[string][]result.Port{"router": {{
				Name: "lan", Interface: "enp2s0", Driver: "igb", DriverVersion: "6.1", Rings: &result.Rings{Rx: rings, Tx: 256},
				Threaded: "0", RPS: []string{"0"}, Interrupts: []result.Interrupt{{Number: rings, Name: "enp2s0-rx-0", CPUs: cpu}},
			}}}}}
	}
	texts := func(a, b result.Run) (list []string, same bool) {
		differences, same := Differences(a, b)
		for _, d := range differences {
			list = append(list, d.String())
		}
		return list, same
	}
	list, same := texts(run(256, "0", "performance"), run(512, "0-1", "powersave"))
	if want := []string{"frequency governor: performance, then powersave",
		"link of router lan interrupts: enp2s0-rx-0 on CPU 0, then enp2s0-rx-0 on CPU 0-1",
		"link of router lan rings: 256 rx 256 tx, then 512 rx 256 tx"}; !slices.Equal(list, want) || same {
		t.Errorf("%q, %v", list, same)
	}
	if list, same := texts(run(256, "0", "performance"), result.Run{Dir: t.TempDir()}); len(list) > 0 || !same {
		t.Errorf("of a run that does not tell: %q", list)
	}
}
