package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/dut"
)

// devices writes the page of the devices that an experiment may name without describing them.
func devices(string) (string, error) {
	var list, tunnels strings.Builder
	for _, name := range dut.Names() {
		d, err := dut.New(name, 1, nil)
		if err != nil {
			return "", err
		}
		t := d.Traits()
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", name, cell(t.About), cell(needs(t.Needs)))
		if tunnel, ok := d.(*dut.Tunnel); ok {
			fmt.Fprintf(&tunnels, "| `%s` | %d | %s |\n", name, tunnel.MTU(), cell(tunnel.Encapsulation().String()))
		}
	}
	return head("Devices",
		"How one is made: [adding a gateway](../adding-a-dut.md). Missing packages and features of the "+
			"kernel: `gateweigh doctor`.") +
		"| Device | What | Needs programs (Debian's package) and features of the kernel |\n|---|---|---|\n" + list.String() +
		"\n## Tunnels' headers\n\n| Device | MTU | Around each packet, bytes |\n|---|--:|---|\n" + tunnels.String(), nil
}

// needs lists programs and kernel features, each once. A program has its package where the package has another name.
func needs(all []dut.Need) string {
	var parts []string
	add := func(part string) {
		if part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	for _, n := range all {
		if n.Program == "" {
			continue
		}
		part := "`" + n.Program + "`"
		if n.Package != "" && n.Package != n.Program {
			part += " (" + n.Package + ")"
		}
		add(part)
	}
	for _, n := range all {
		add(string(n.Feature))
	}
	return strings.Join(parts, ", ")
}
