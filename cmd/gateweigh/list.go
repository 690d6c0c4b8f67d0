package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List experiments and devices, and whether each device can run here",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "EXPERIMENT\tTAKES ABOUT\tWHAT IT DOES")
			for _, e := range experiment.Builtins() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name, e.EstimatedDuration(), e.Description)
			}
			fmt.Fprintln(w, "\nDEVICE\tHERE\tWHAT IT IS")
			for _, name := range dut.Names() {
				d, err := dut.New(name, 1, nil)
				if err != nil {
					return err
				}
				here := "yes"
				if err := d.Check(cmd.Context()); err != nil {
					here = "no: " + strings.TrimSuffix(err.Error(), ": "+dut.ErrNotSupported.Error())
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, here, d.Traits().About)
			}
			return w.Flush()
		},
	}
}
