package tun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"unsafe"

	rtnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// watcher follows the LAN's interface and the TUN device: the device's MTU is the
// LAN's, so that the kernel fragments for it, and without one of them nothing passes
// any more.
type watcher struct {
	lan    *net.Interface
	device int // index
	mtu    int // of both, as far as is known
	name   string

	conn    *rtnetlink.Conn
	running sync.WaitGroup
	failed  *failure
}

// failure is the first reason why a data path cannot go on.
type failure struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

func (f *failure) set(err error) { f.once.Do(func() { f.err = err; close(f.done) }) }

// newWatcher begins to watch. Messages wait until run.
func newWatcher(lan *net.Interface, device string, failed *failure) (*watcher, error) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", device, err)
	}
	w := &watcher{lan: lan, device: dev.Index, mtu: dev.MTU, name: device, failed: failed}
	if w.conn, err = rtnetlink.Dial(unix.NETLINK_ROUTE, nil); err != nil {
		return nil, fmt.Errorf("following the interfaces: %w", err)
	}
	if err := w.conn.JoinGroup(unix.RTNLGRP_LINK); err != nil {
		w.conn.Close()
		return nil, fmt.Errorf("following the interfaces: %w", err)
	}
	w.running.Go(w.run)
	return w, nil
}

// run looks after both interfaces whenever one changes, or messages were lost.
func (w *watcher) run() {
	for {
		if err := w.look(); err != nil {
			w.failed.set(err)
		}
		for changed := false; !changed; {
			messages, err := w.conn.Receive()
			if err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return // closed
			}
			changed = err != nil
			for _, m := range messages {
				changed = changed || w.concerns(m)
			}
		}
	}
}

func (w *watcher) concerns(m rtnetlink.Message) bool {
	if len(m.Data) < int(unsafe.Sizeof(unix.IfInfomsg{})) {
		return false
	}
	index := int((*unix.IfInfomsg)(unsafe.Pointer(&m.Data[0])).Index)
	return index == w.lan.Index || index == w.device
}

// look gives the device the LAN's MTU. It fails when one of them is gone.
func (w *watcher) look() error {
	lan, err := net.InterfaceByIndex(w.lan.Index)
	if err != nil {
		return fmt.Errorf("the LAN's interface %s is gone: %w", w.lan.Name, err)
	}
	if _, err := net.InterfaceByIndex(w.device); err != nil {
		return fmt.Errorf("the TUN device %s is gone: %w", w.name, err)
	}
	if lan.MTU == w.mtu {
		return nil
	}
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: w.device}}
	if err := netlink.LinkSetMTU(link, lan.MTU); err != nil {
		return fmt.Errorf("giving %s the MTU of %s: %w", w.name, lan.Name, err)
	}
	w.mtu = lan.MTU
	return nil
}

func (w *watcher) close() {
	w.conn.Close()
	w.running.Wait()
}

// Wait returns when ctx ends, or with an error when the data path cannot go on: one
// of its interfaces is gone.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.failed.done:
		return fmt.Errorf("the TUN data path: %w", d.failed.err)
	}
}
