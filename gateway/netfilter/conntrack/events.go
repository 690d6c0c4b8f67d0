package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// drain is for how long events are still read when their context ends.
const drain = 100 * time.Millisecond

// Events is the kernel's report of connections that begin and end, in this network namespace.
//
// The socket asks for errors of delivery: the kernel then keeps a connection that ended until its end
// is delivered, instead of forgetting it (nf_conntrack_ecache.c). So an overflow delays ends and
// loses beginnings, which a listing finds.
type Events struct{ c *netlink.Conn }

// Listen has the kernel keep reports from now on, as many as fit into a buffer: about 800 in each MB.
func Listen(bufferBytes int) (*Events, error) {
	const began, ended = 1, 3 // NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("following connections: %w", err)
	}
	err = errors.Join(c.SetReadBuffer(bufferBytes), c.SetOption(netlink.BroadcastError, true), c.JoinGroup(began),
		c.JoinGroup(ended))
	if err != nil {
		return nil, fmt.Errorf(
			"following connections (the kernel needs CONFIG_NF_CT_NETLINK and CONFIG_NF_CONNTRACK_EVENTS): %w",
			errors.Join(err, c.Close()))
	}
	return &Events{c}, nil
}

// Close ends the reports.
func (e *Events) Close() error { return e.c.Close() }

// Follow calls began and ended for each connection, and missed after events were lost, until ctx
// ends.
func (e *Events) Follow(ctx context.Context, began, ended func(Connection), missed func() error) error {
	stop := context.AfterFunc(ctx, func() { e.c.SetReadDeadline(time.Now().Add(drain)) })
	defer stop()
	for {
		messages, err := e.c.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			if err := missed(); err != nil {
				return err
			}
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("following connections: %w", err)
		}
		dispatch(messages, began, ended)
	}
}

// dispatch calls began and ended for the connections that messages report.
func dispatch(messages []netlink.Message, began, ended func(Connection)) {
	for _, m := range messages {
		c, err := Read(m.Data)
		if err != nil {
			continue // of another family
		}
		switch m.Header.Type {
		case kindNew:
			began(c)
		case kindDelete:
			ended(c)
		}
	}
}

// Reported is Follow for reports that have arrived already: it does not wait for others.
func (e *Events) Reported(began, ended func(Connection), missed func() error) error {
	rc, err := e.c.SyscallConn()
	if err != nil {
		return fmt.Errorf("following connections: %w", err)
	}
	for {
		var none error
		err := rc.Control(func(fd uintptr) { _, _, none = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT) })
		if errors.Is(none, unix.ENOBUFS) {
			return missed()
		}
		if err != nil || none != nil {
			return err
		}
		messages, err := e.c.Receive()
		if err != nil {
			return fmt.Errorf("following connections: %w", err)
		}
		dispatch(messages, began, ended)
	}
}
