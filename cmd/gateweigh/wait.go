package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gateweigh/gateweigh/lab/runner"
)

// lookAgain is how often a run that waits for another looks whether that has ended.
const lookAgain = 200 * time.Millisecond

// whenFree takes what only one run at a time can have. With --wait it waits while another run has it, and says whose it
// is.
func (f runFlags) whenFree(ctx context.Context, take func() error) error {
	for shown := ""; ; {
		err := take()
		if !f.wait || !errors.Is(err, runner.ErrBusy) {
			return err
		}
		if other := runner.Holder(); other != shown {
			shown = other
			fmt.Fprintf(os.Stderr, "waiting until another run has ended (%s); Ctrl-C ends the wait\n", other)
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted while another run measured: nothing was begun")
		case <-time.After(lookAgain):
		}
	}
}
