package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

func doctorCommand() *cobra.Command {
	var asJSON, quick, all bool
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine what this machine can measure, how well, and what to do about problems",
		Long: "Tries every kernel feature and tool that the lab and its devices need, checks the machine's limits, and\n" +
			"measures for half a minute how noisy the machine is. It changes nothing. Printed are the verdict, what to do\n" +
			"first, and what is not as measurements need it, with a remedy; with --all also the rest. With --experiment it " +
			"asks\n" +
			"each machine of that experiment what it lacks for it, all at the same time. Exit code 0: gateweigh " +
			"run would measure; 3: nothing can run here.",
		Example: "  sudo gateweigh doctor --quick\n  gateweigh doctor --experiment lab.toml",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			line := newStatusLine(os.Stderr)
			found, err := examine(cmd.Context(), file, doctor.Options{
				Quick: quick, Version: version, Status: func(text string) { line.say(text) },
			})
			line.clear()
			if err != nil {
				return err
			}
			if asJSON {
				err = report.JSON(stdout, found)
			} else {
				writeReport(stdout, found, terminalWidth(os.Stdout), all)
			}
			if err == nil && !found.CanRun {
				return &exitError{exitNothingRan, errors.New(found.Verdict)}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().BoolVar(&all, "all", false, "print every line, also of what is as measurements need it")
	cmd.Flags().StringVar(&file, "experiment", "",
		"ask the machines of an experiment, `NAME or FILE`, what they lack for it; nothing is measured")
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out the slow part: the fixed loop and the A/A pair")
	return cmd
}

// examine examines this machine, or, where name is an experiment, the machines of that experiment.
func examine(ctx context.Context, name string, opts doctor.Options) (doctor.Report, error) {
	if name == "" {
		return doctor.Examine(ctx, opts)
	}
	e, err := loadExperiment(name)
	if err == nil {
		err = dut.CheckVariants(e)
	}
	if err != nil {
		return doctor.Report{}, &exitError{exitUsage, err}
	}
	return doctor.ExamineFor(ctx, e, opts)
}

// writeReport prints the verdict, what to do first, and in each group of checks those that are not ok; with all it
// prints every check.
func writeReport(w io.Writer, r doctor.Report, width int, all bool) {
	writeWrapped(w, "", 0, width, words.Joined(" ", r.Verdict, r.Outlook))
	if r.First != "" {
		writeWrapped(w, "", 0, width, "First: "+r.First)
	}
	fmt.Fprintln(w)
	for _, g := range r.Groups {
		lines, rest := g.Checks, ""
		if !all {
			lines, rest = shortened(g)
		}
		fmt.Fprintln(w, g.Name+words.When(rest != "", ": "+rest))
		writeLines(w, lines, width)
		if len(lines) > 0 {
			fmt.Fprintln(w)
		}
	}
	if !all {
		fmt.Fprintln(w, "\ngateweigh doctor --all prints every line, gateweigh list NAME what a device needs.")
	}
}

// writeLines prints checks in columns: the state, the subject, and what was found, what that means, and what to do.
func writeLines(w io.Writer, lines []doctor.Check, width int) {
	const most = 30 // characters of a subject; the text of a longer one stands below it instead of beside it
	subject := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.Subject); n <= most {
			subject = max(subject, n)
		}
	}
	column := len("  missing  ") + subject + 2
	for _, l := range lines {
		text := []string{l.Found}
		if l.Means != "" {
			text[0] += ". " + strings.ToUpper(l.Means[:1]) + l.Means[1:]
		}
		if l.Remedy != "" {
			text = append(text, "→ "+l.Remedy)
		}
		state := fmt.Sprintf("  %-7s  ", l.State)
		if utf8.RuneCountInString(l.Subject) > most {
			writeWrapped(w, state, len(state), width, l.Subject+": "+text[0])
			state, text = "", text[1:]
		} else {
			state += l.Subject
		}
		writeWrapped(w, state, column, width, text...)
	}
}

// shortened returns the checks of a group that are not ok, and rest, a text that counts the ones that are. Checks with
// the same finding and remedy become one line. Of devices it returns the names only, because what they lack stands in
// the groups of kernel features and tools.
func shortened(g doctor.Group) (lines []doctor.Check, rest string) {
	var fine, not []string
	for _, l := range g.Checks {
		if l.State == doctor.OK {
			fine = append(fine, l.Subject)
			continue
		}
		not = append(not, l.Subject)
		index := slices.IndexFunc(
			lines, func(o doctor.Check) bool { return o.State == l.State && o.Found == l.Found && o.Remedy == l.Remedy })
		if index < 0 {
			lines = append(lines, l)
		} else {
			lines[index].Subject += ", " + l.Subject
		}
	}
	rest = fmt.Sprintf("%d of %d ok", len(fine), len(g.Checks))
	if g.Name != doctor.Devices {
		return lines, rest
	}
	lines = nil
	for _, d := range []struct {
		state doctor.State
		names []string
	}{{doctor.OK, fine}, {doctor.Missing, not}} {
		if len(d.names) > 0 {
			lines = append(lines,
				doctor.Check{State: d.state, Subject: words.Counted(len(d.names), "device"), Found: strings.Join(d.names, ", ")})
		}
	}
	return lines, fmt.Sprintf("%d of %d run here", len(fine), len(g.Checks))
}
