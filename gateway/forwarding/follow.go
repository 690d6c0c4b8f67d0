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

// Follow calls look until ctx ends: at once, whenever the kernel's setting of forwarding or redirects changes at an
// interface, and every second as long as look returns false.
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
		if ctx.Err() != nil { // it may have ended before SetReadDeadline, which has then replaced the deadline of stop
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
