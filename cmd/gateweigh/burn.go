package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/words"
)

func burnCommand() *cobra.Command {
	var length, slice time.Duration
	cmd := &cobra.Command{
		Use:   "burn PERCENT…",
		Short: "Load this machine's cores, each by a given percentage",
		Long: fmt.Sprintf(
			"Works on the first core for the first percentage of its time, on the second core for the second, and so on\n"+
				"(%g to %g, or 0 for none), in slices of %s or --slice, until Ctrl-C. Each thread reads its own task clock and "+
				"corrects its\n"+
				"sleeps. Its real-time priority precedes ordinary programs; other real-time programs, a hypervisor and limits of\n"+
				"a control group take from its share all the same. Without permission for that priority any program may. At the "+
				"end the\n"+
				"shares that the cores really had are printed. Runs with router.speed slow routers down by the same means:\n"+
				"one such run or command at a time works on a machine.", 100*burn.Least, 100*burn.Most, burn.Slice),
		Example: "  gateweigh burn 70 50\n  gateweigh burn 0 30 --for 10s\n  gateweigh burn 20 20 --slice 10ms",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") && length <= 0 {
				return &exitError{exitUsage, fmt.Errorf("--for %s: want a time to burn, such as 10s", length)}
			}
			if slice < burn.Slice || slice > burn.LongestSlice {
				return &exitError{exitUsage, fmt.Errorf("--slice %s: want %s to %s", slice, burn.Slice, burn.LongestSlice)}
			}
			loads, err := parseLoads(args)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return burnFor(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), loads, slice, length)
		},
	}
	cmd.Flags().DurationVar(&slice, "slice", burn.Slice, fmt.Sprintf(
		"how long each core works at a time, %s to %s; a neighbour on the same host takes 1ms to 10ms", burn.Slice,
		burn.LongestSlice))
	cmd.Flags().DurationVar(&length, "for", 0, "how long; without it until Ctrl-C")
	return cmd
}

// parseLoads reads the percentages: the first is for the first CPU that this process may use, and so on.
func parseLoads(args []string) (loads []burn.Load, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return nil, fmt.Errorf("asking which CPUs this process may use: %w", err)
	}
	var cpus []int
	for cpu := range 64 * len(may) { // a set's words have 64 bits, or 32; beyond the last IsSet is false
		if may.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(args) > len(cpus) {
		return nil, fmt.Errorf(
			"%s for %s: this process may use CPU %s", words.Counted(len(args), "percentage"), words.Counted(len(cpus), "core"),
			strings.Trim(fmt.Sprint(cpus), "[]"))
	}
	for i, arg := range args {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(arg, "%"), 64)
		if err != nil || !(percent == 0 || percent >= 100*burn.Least && percent <= 100*burn.Most) {
			return nil, fmt.Errorf("%q: want a percentage of a core from %g to %g, or 0 for none; the machine needs the rest",
				arg, 100*burn.Least, 100*burn.Most)
		}
		if percent > 0 {
			loads = append(loads, burn.Load{CPU: cpus[i], Share: percent / 100})
		}
	}
	if len(loads) == 0 {
		return nil, errors.New("every percentage is 0: there is nothing to burn")
	}
	return loads, nil
}

// burnFor burns until ctx ends or length is over (0: no limit), and prints which share of its time each core burned.
func burnFor(ctx context.Context, out, say io.Writer, loads []burn.Load, slice, length time.Duration) error {
	debug.SetGCPercent(-1) // a garbage collection would stop the burning threads
	runtime.GOMAXPROCS(runtime.NumCPU() + len(loads))
	lock, err := burn.Lock(0)
	if err != nil {
		return err
	}
	defer lock.Close()
	burner, err := burn.Start(loads, burn.RealTime, slice)
	if errors.Is(err, realtime.ErrDenied) {
		fmt.Fprintf(say,
			"gateweigh: %v: burning with ordinary priority, so other programs may leave less than was asked for\n", err)
		burner, err = burn.Start(loads, burn.Eager, slice)
	}
	if err != nil {
		return err
	}
	defer burner.Stop()
	first, err := burner.Read()
	if err != nil {
		return err
	}
	if length > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, length)
		defer stop()
	}
	<-ctx.Done()
	last, err := burner.Read()
	if err != nil {
		return err
	}
	for i, l := range loads {
		fmt.Fprintf(out, "CPU %d: %.1f %% of %.1f s (asked for %.4g %%)\n", l.CPU, 100*burn.Share(first[i], last[i]),
			float64(last[i].AtNs-first[i].AtNs)/1e9, 100*l.Share)
	}
	return nil
}
