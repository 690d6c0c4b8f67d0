package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// part is a part of a gateway, such as its portal. Parts are opened in the order of a list, and closed in the reverse
// order.
type part struct {
	name string
	// open opens the part. What it returns is closed also where it fails.
	open func(context.Context) (opened, error)
}

// opened is a part that is open.
type opened struct {
	run   func(context.Context) error // until ctx ends, or with the reason why it cannot go on; nil: it does not run
	close func() error                // nil: there is nothing to close
}

// step is a part that is only opened.
func step(name string, action func() error) part {
	return part{name, func(context.Context) (opened, error) { return opened{}, action() }}
}

// runParts opens parts one after the other, runs them beside each other until ctx ends or one of them does, and closes
// them in the reverse order. Where one cannot be opened, those before it are closed. ready is called once all run.
func runParts(ctx context.Context, all []part, ready func()) (err error) {
	var open []opened
	defer func() {
		for _, o := range slices.Backward(open) {
			if o.close != nil {
				err = errors.Join(err, o.close())
			}
		}
	}()
	for _, p := range all {
		o, err := p.open(ctx)
		open = append(open, o)
		if err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	failed := make([]error, len(all))
	for i, o := range open {
		if o.run == nil {
			continue
		}
		running.Go(func() {
			defer stop()
			err := o.run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				failed[i] = fmt.Errorf("%s: %w", all[i].name, err)
			}
		})
	}
	ready()
	running.Wait()
	return errors.Join(failed...)
}
