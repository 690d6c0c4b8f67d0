package flowlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// bufferBytes holds what the kernel reports while the log is not read: about 100,000 events. Tests change it.
var bufferBytes = 128 << 20

// drain is for how long events are still read when the log ends.
const drain = 100 * time.Millisecond

// source is the kernel's report of connections that begin and end, in this network namespace.
//
// The socket asks for errors of delivery: the kernel then keeps a connection that ended until its end
// is delivered, instead of forgetting it (nf_conntrack_ecache.c). So an overflow delays ends and
// loses beginnings, which a dump finds.
type source struct{ c *netlink.Conn }

func openSource() (*source, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("following connections: %w", err)
	}
	err = errors.Join(c.SetReadBuffer(bufferBytes), c.SetOption(netlink.BroadcastError, true), c.JoinGroup(groupNew),
		c.JoinGroup(groupDestroy))
	if err != nil {
		return nil, fmt.Errorf(
			"following connections (the kernel needs CONFIG_NF_CT_NETLINK and CONFIG_NF_CONNTRACK_EVENTS): %w",
			errors.Join(err, c.Close()))
	}
	return &source{c}, nil
}

// follow calls began and ended for each connection, and missed after events were lost, until ctx
// ends.
func (s *source) follow(ctx context.Context, began, ended func(connection), missed func() error) error {
	stop := context.AfterFunc(ctx, func() { s.c.SetReadDeadline(time.Now().Add(drain)) })
	defer stop()
	for {
		messages, err := s.c.Receive()
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
		tell(messages, began, ended)
	}
}

// tell calls began and ended for what messages report.
func tell(messages []netlink.Message, began, ended func(connection)) {
	for _, m := range messages {
		c, err := parseConnection(m.Data)
		if err != nil {
			continue // of another family
		}
		switch m.Header.Type {
		case ctNew:
			began(c)
		case ctDelete:
			ended(c)
		}
	}
}

// reported is follow for what the kernel has reported already, without waiting.
func (s *source) reported(began, ended func(connection), missed func() error) error {
	rc, err := s.c.SyscallConn()
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
		messages, err := s.c.Receive()
		if err != nil {
			return fmt.Errorf("following connections: %w", err)
		}
		tell(messages, began, ended)
	}
}

// dump calls visit for each connection there is.
func dump(visit func(connection)) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	defer c.Close()
	messages, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: ctGet, Flags: netlink.Request | netlink.Dump},
		Data:   []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	for _, m := range messages {
		if c, err := parseConnection(m.Data); err == nil {
			visit(c)
		}
	}
	return nil
}
