package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gateweigh/gateweigh/lab/runner"
)

// retryInterval is the pause between two attempts of a run that waits for another one to end.
const retryInterval = 200 * time.Millisecond

// whenFree calls take, which fails with runner.ErrBusy while another run measures on this machine. With --wait it then
// tries again until the other run has ended, and prints once which run it waits for.
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
		case <-time.After(retryInterval):
		}
	}
}
