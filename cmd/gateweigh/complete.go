package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// What a shell completes: see gateweigh completion.

// completeExperiments has the built-in experiments, and files of others.
func completeExperiments(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case strings.ContainsRune(begun, filepath.Separator):
		return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	files, _ := filepath.Glob(escapedGlob(begun) + "*.toml")
	return append(experimentNames(), files...), cobra.ShellCompDirectiveNoFileComp
}

// escapedGlob is a pattern that matches a text alone.
func escapedGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

func experimentNames() (names []string) {
	for _, e := range measure.Catalogue().Builtins() {
		names = append(names, e.Name)
	}
	return names
}

// completeNames has what gateweigh list shows.
func completeNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Concat(experimentNames(), dut.Names()), cobra.ShellCompDirectiveNoFileComp
}

// completeSets has the keys of --set, and behind "duts=" the devices, behind their commas too.
func completeSets(_ *cobra.Command, _ []string, begun string) (all []string, _ cobra.ShellCompDirective) {
	if list, is := strings.CutPrefix(begun, "duts="); is {
		before := begun[:len(begun)-len(list)+strings.LastIndex(list, ",")+1]
		for _, name := range dut.Names() {
			all = append(all, before+name)
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	for _, key := range measure.Catalogue().Keys() {
		all = append(all, key+"=")
	}
	return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeKernels has what --kernel takes besides paths.
func completeKernels(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	if strings.ContainsRune(begun, filepath.Separator) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return append(kernelNames(cmd.Context()), native), cobra.ShellCompDirectiveNoFileComp
}

// completeExplained has runs, and then the devices of the one that was named.
func completeExplained(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	run, forget, err := measure.Open(cmd.Context(), args[0])
	defer forget()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return devicesOf(run), cobra.ShellCompDirectiveNoFileComp
}

// devicesOf are the devices that a run has trials of.
func devicesOf(run result.Run) (names []string) {
	for _, t := range run.Trials {
		if name := t.Cell.Text(result.DUT); !t.AA && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// completes adds to a command what its flags take. A flag that is not there is a fault of the program.
func completes(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err)
	}
}
