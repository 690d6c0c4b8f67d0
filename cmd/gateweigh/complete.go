package main

import (
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/sink"
	"github.com/gateweigh/gateweigh/manual"
)

// What a shell completes: see gateweigh completion.

// completes adds to all commands what their arguments and flags take. Where nothing is said, shells offer files: runs
// are.
func completes(root *cobra.Command) {
	none := cobra.NoFileCompletions
	argument := map[string]cobra.CompletionFunc{
		"run": completeExperiments, "check": completeExperiments, "shell": completeShells, "list": completeNames,
		"explain": completeExplained,
		"sink":    among(sink.Kinds()...), "burn": none,
		"kernel check": completeKernelNames, "kernel exec": completeCommands,
		"kernel fetch": completeKernelNames, "kernel remove": completeKernelNames,
	}
	flag := map[string]cobra.CompletionFunc{
		"set": completeSets, "kernel": completeKernels, "dut": among(dut.Names()...), "link": none,
		"direction": among(result.Up, result.Down), "packets": among(result.PerPacket, result.Bulk),
		"resume": manual.Folders, "share": manual.Folders,
		"interface": completeInterfaces, "work": among("memcpy", "gzip"), "filter-program": none,
		"max-regression": none, "max-overhead": none, "delta": none, "confidence": none,
	}
	manual.Complete(root, argument, flag)
}

// among completes one argument, which is one of a few words.
func among(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeShells has the experiments, files and runs whose lab is opened, then its hosts, and then files of a command.
func completeShells(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0 && strings.ContainsRune(begun, filepath.Separator):
		return nil, cobra.ShellCompDirectiveDefault
	case len(args) == 0:
		return experimentNames(), cobra.ShellCompDirectiveDefault
	case len(args) == 1:
		return []string{"router", "client", "server"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// completeKernelNames has the kernels that are here or can be fetched.
func completeKernelNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return kernelNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeCommands has a kernel, and then files of the command that is run under it.
func completeCommands(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return kernelNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

func completeInterfaces(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	links, _ := net.Interfaces() // without them there is nothing to offer
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

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
