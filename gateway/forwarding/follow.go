package forwarding

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// retryPause is the pause before look is called again after it returned false.
const retryPause = time.Second

// Follow calls look at once, whenever a switch of forwarding or redirects changes, and every second while it returns
// false, until ctx ends.
func Follow(ctx context.Context, look func() bool) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: 1 << (unix.RTNLGRP_IPV4_NETCONF - 1)})
	if err != nil {
		return fmt.Errorf("following the switches of forwarding: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	defer func() { stop(); c.Close() }()
	for {
		var until time.Time
		if !look() {
			until = time.Now().Add(retryPause)
		}
		if err := c.SetReadDeadline(until); err != nil {
			return fmt.Errorf("following the switches of forwarding: %w", err)
		}
		if ctx.Err() != nil { // before or after that deadline
			return nil
		}
		_, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("following the switches of forwarding: %w", err)
		}
	}
}
