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

// addCompletions tells the shell, for all commands, which words to offer for their arguments and flags (see gateweigh
// completion). For arguments and flags without an entry shells offer files, which fits runs.
func addCompletions(root *cobra.Command) {
	none := cobra.NoFileCompletions
	argument := map[string]cobra.CompletionFunc{
		"run": completeExperiments, "check": completeExperiments, "shell": completeShells, "list": completeNames,
		"explain": completeExplained,
		"sink":    oneOf(sink.Kinds()...), "burn": none,
		"kernel check": completeKernelNames, "kernel exec": completeCommands,
		"kernel fetch": completeKernelNames, "kernel remove": completeKernelNames,
	}
	flag := map[string]cobra.CompletionFunc{
		"set": completeSets, "kernel": completeKernels, "dut": oneOf(dut.Names()...), "link": none,
		"direction": oneOf(result.Up, result.Down), "packets": oneOf(result.PerPacket, result.Bulk),
		"resume": manual.Folders, "share": manual.Folders,
		"interface": completeInterfaces, "work": oneOf("memcpy", "gzip"), "filter-program": none,
		"max-regression": none, "max-overhead": none, "delta": none, "confidence": none,
	}
	manual.Complete(root, argument, flag)
}

// oneOf completes a single argument with one of the given words.
func oneOf(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeShells completes the arguments of shell: an experiment, a file or a run; then a host; then a command.
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

// completeKernelNames completes a single argument with the kernels that are here or can be fetched.
func completeKernelNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return kernelNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeCommands completes the arguments of kernel exec: a kernel, then files, for the command.
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

// completeExperiments completes a single argument with the built-in experiments and with TOML files.
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

// escapedGlob escapes the characters that have a meaning in a pattern of filepath.Glob.
func escapedGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

func experimentNames() (names []string) {
	for _, e := range measure.Catalogue().Builtins() {
		names = append(names, e.Name)
	}
	return names
}

// completeNames completes a single argument with the names that gateweigh list shows.
func completeNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Concat(experimentNames(), dut.Names()), cobra.ShellCompDirectiveNoFileComp
}

// completeSets completes --set with keys, and after "duts=" with devices, also after the commas of a list of them.
func completeSets(_ *cobra.Command, _ []string, begun string) (all []string, _ cobra.ShellCompDirective) {
	if list, ok := strings.CutPrefix(begun, "duts="); ok {
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

// completeKernels completes --kernel with the names of kernels; where a path was begun the shell completes that.
func completeKernels(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	if strings.ContainsRune(begun, filepath.Separator) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return append(kernelNames(cmd.Context()), native), cobra.ShellCompDirectiveNoFileComp
}

// completeExplained completes the arguments of explain: a run, then a device of that run.
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

// devicesOf returns the devices of which a run has trials, sorted.
func devicesOf(run result.Run) (names []string) {
	for _, t := range run.Trials {
		if name := t.Cell.Text(result.DUT); !t.AA && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
