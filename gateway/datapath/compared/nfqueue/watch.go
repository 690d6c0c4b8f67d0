package nfqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// watcher reports when one of the interfaces is gone. The rules match the LAN's name and
// keep a new interface of that name closed; the judges would not know it.
type watcher struct {
	conn    *netlink.Conn
	lost    chan error // buffered: one
	running sync.WaitGroup
}

// watch begins to watch interfaces.
func watch(devices ...*net.Interface) (*watcher, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: 1 << (unix.RTNLGRP_LINK - 1)})
	if err != nil {
		return nil, fmt.Errorf("following the interfaces: %w", err)
	}
	w := &watcher{conn: conn, lost: make(chan error, 1)}
	w.running.Go(func() {
		for {
			for _, dev := range devices {
				if _, err := net.InterfaceByIndex(dev.Index); err != nil {
					w.lost <- fmt.Errorf("%s is gone: nobody's packets pass until gatewayd is started again: %w", dev.Name, err)
					return
				}
			}
			// Whatever the message, the interfaces are checked; also when messages were lost.
			if _, err := conn.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return // closed
			}
		}
	})
	return w, nil
}

func (w *watcher) close() error {
	err := w.conn.Close()
	w.running.Wait()
	return err
}

// Wait returns when ctx ends, or with an error when an interface is gone.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.watcher.lost:
		return fmt.Errorf("the NFQUEUE data path: %w", err)
	}
}
