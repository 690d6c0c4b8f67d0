package flowlog

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// Search is the flow log of a network, and what was found in it.
type Search struct {
	Network string // "": there is only one
	Folder  string
	Found
}

// FindAll searches logs. One in which nothing can be found, as of a new network, is an error only where nothing is
// found in the others either.
func FindAll(ctx context.Context, logs []Search, endpoint netip.AddrPort, instant time.Time) error {
	var errs []error
	found := false
	for i := range logs {
		var err error
		logs[i].Found, err = find(ctx, logs[i].Folder, endpoint, instant)
		if err != nil && !errors.Is(err, ErrNoLog) && !errors.Is(err, ErrTooOld) {
			return err
		}
		if err != nil {
			errs = append(errs, err)
		}
		found = found || len(logs[i].Flows) > 0
	}
	if found {
		return nil
	}
	return errors.Join(errs...)
}
