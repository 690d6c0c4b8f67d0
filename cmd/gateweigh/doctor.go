package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

func doctorCommand() *cobra.Command {
	var asJSON, quick bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine what this machine can measure, how well, and what to do about problems",
		Long: "Tries every kernel feature and tool that the lab and its devices need, checks the machine's limits, and\n" +
			"measures for half a minute how noisy the machine is. It changes nothing. Every line gives the\n" +
			"consequence for measurements or a remedy. Exit code 0: gateweigh run would measure; 3: nothing can run here.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			line := newStatusLine(os.Stderr)
			found, err := doctor.Examine(cmd.Context(), doctor.Options{
				Quick: quick, Version: version, Status: func(text string) { line.say(text) },
			})
			line.clear()
			if err != nil {
				return err
			}
			if asJSON {
				err = report.JSON(stdout, found)
			} else {
				writeReport(stdout, found, terminalWidth(os.Stdout))
			}
			if err == nil && !found.CanRun {
				return &exitError{exitNothingRan, errors.New(found.Verdict)}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out the slow part: the fixed loop and the A/A pair")
	return cmd
}

// writeReport prints a report's lines by group: state, subject, what was found,
// and what that means or what to do.
func writeReport(w io.Writer, r doctor.Report, width int) {
	subject := 0
	for _, g := range r.Groups {
		for _, l := range g.Lines {
			subject = max(subject, utf8.RuneCountInString(l.What))
		}
	}
	if r.CanRun {
		writeWrapped(w, "", 0, width, words.Joined(" ", r.Verdict, r.Outlook))
		fmt.Fprintln(w)
	}
	column := len("  missing  ") + subject + 2
	for _, g := range r.Groups {
		fmt.Fprintln(w, g.Name)
		for _, l := range g.Lines {
			text := []string{l.Found}
			if l.Means != "" {
				text[0] += ". " + strings.ToUpper(l.Means[:1]) + l.Means[1:]
			}
			if l.Do != "" {
				text = append(text, "→ "+l.Do)
			}
			writeWrapped(w, fmt.Sprintf("  %-7s  %s", l.State, l.What), column, width, text...)
		}
		fmt.Fprintln(w)
	}
}
