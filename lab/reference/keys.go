package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// keys writes the page of experiments' keys, without those of [dut.NAME].
func keys(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Keys of experiments",
		"How they work together: [experiments](../experiments.md). Keys of devices: [device-keys](device-keys.md)."))
	c := measure.Catalogue()
	all := c.Reference()
	keysOf := func(name string) (list []experiment.KeyReference) {
		for _, k := range all {
			if k.Own == name {
				list = append(list, k)
			}
		}
		return list
	}
	b.WriteString("## Keys of several measures\n\n")
	table(&b, keysOf(""), len(c.Measures))
	for _, m := range c.Measures {
		if list := keysOf(m.Name); len(list) > 0 {
			fmt.Fprintf(&b, "\n## `measure = %q`\n\n", m.Name)
			table(&b, list, 1)
		}
	}
	b.WriteString("\n## `[backend.host.NAME]`\n\nNAME is `router`, `server`, `client`, `client2` or `client3`.\n\n")
	table(&b, experiment.HostReference(), 1)
	return b.String(), nil
}

// deviceKeys writes the page of the keys of [dut.NAME].
func deviceKeys(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Keys of devices",
		"They stand in `[dut.NAME]`; how a device is made: [adding a gateway](../adding-a-dut.md)."))
	table(&b, experiment.DUTReference(), 1)
	return b.String(), nil
}

// table writes one row for each key. If a key applies to fewer measures than all, the row names them.
func table(b *strings.Builder, list []experiment.KeyReference, all int) {
	head, rule := "| Key | Takes | Default | Meaning |", "\n|---|---|---|---|"
	if all > 1 {
		head, rule = head+" With measures |", rule+"---|"
	}
	b.WriteString(head + rule + "\n")
	for _, k := range list {
		accepts := k.Accepts
		if k.List {
			accepts = "list; each " + accepts
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |", k.Key, cell(accepts), cell(defaults(k)), cell(k.Meaning))
		switch {
		case all > 1 && len(k.Measures) == all:
			b.WriteString(" all |")
		case all > 1:
			fmt.Fprintf(b, " %s |", strings.Join(k.Measures, ", "))
		}
		b.WriteString("\n")
	}
}

// defaults returns a key's default, for each measure where they differ.
func defaults(k experiment.KeyReference) string {
	if one := cmp.Or(k.Default(), k.Defaults[""]); one != "" {
		return "`" + one + "`"
	}
	var parts []string
	for _, value := range slices.Compact(slices.Sorted(maps.Values(k.Defaults))) {
		var measures []string
		for _, m := range k.Measures {
			if k.Defaults[m] == value {
				measures = append(measures, m)
			}
		}
		parts = append(parts, "`"+value+"` ("+strings.Join(measures, ", ")+")")
	}
	return strings.Join(parts, "; ")
}

// cell escapes a text for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
