package sink

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/quote"
)

// port is the interface whose frames are captured.
type port struct {
	name     string
	index    int
	mtu      int
	loopback bool            // it is a loopback interface, where each outgoing frame comes back
	ns       *netlink.Handle // a socket in the interface's network namespace, for requests from any thread
}

// findPort finds the interface of a name in this thread's network namespace. It is an error if the interface does not
// carry Ethernet frames, or is down.
func findPort(name string) (port, error) {
	ns, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return port{}, fmt.Errorf("asking for interfaces: %w", err)
	}
	link, err := ns.LinkByName(name)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		ns.Close()
		return port{}, &configError{"there is no such interface here: ip link shows which there are"}
	}
	if err != nil {
		ns.Close()
		return port{}, fmt.Errorf("asking for the interface: %w", err)
	}
	attrs := link.Attrs()
	p := port{name: name, index: attrs.Index, mtu: attrs.MTU, loopback: attrs.RawFlags&unix.IFF_LOOPBACK != 0, ns: ns}
	switch kind := attrs.EncapType; {
	case kind != "ether" && kind != "loopback":
		err = &configError{fmt.Sprintf("the interface carries %s: frames of Ethernet are captured", kind)}
	case attrs.RawFlags&unix.IFF_UP == 0:
		err = p.downError()
	}
	if err != nil {
		ns.Close()
	}
	return p, err
}

// downError is the error for an interface that is down.
func (p port) downError() error {
	return fmt.Errorf("the interface is down: %s", quote.Command("ip", "link", "set", p.name, "up"))
}

// dropped returns the interface's counts of frames that it missed and of frames that it dropped; 0 when the interface
// is gone. Dropped frames include those that the sink has seen and that belong to a protocol which the machine does not
// speak.
func (p port) dropped() (missed, dropped int64) {
	link, err := p.ns.LinkByIndex(p.index)
	if err != nil || link.Attrs().Statistics == nil {
		return 0, 0
	}
	stats := link.Attrs().Statistics
	return int64(stats.RxMissedErrors + stats.RxFifoErrors + stats.RxOverErrors), int64(stats.RxDropped)
}

// downReason says whether the interface was removed or only went down. An interface goes down before it is removed; the
// kernel answers the question after the removal.
func (p port) downReason() error {
	_, err := p.ns.LinkByIndex(p.index)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return errors.New("the interface was removed")
	}
	return p.downError()
}

// watch returns a channel that delivers an error when the interface goes down or is removed. It watches until the
// process ends.
func (p port) watch() (<-chan error, error) {
	updates := make(chan netlink.LinkUpdate, 16)
	down := make(chan error, 1)
	if err := netlink.LinkSubscribe(updates, nil); err != nil {
		return nil, fmt.Errorf("watching the interface: %w", err)
	}
	go func() {
		for update := range updates {
			switch {
			case int(update.Index) != p.index || update.IfInfomsg.Family != unix.AF_UNSPEC:
			case update.Header.Type == unix.RTM_DELLINK || update.IfInfomsg.Flags&unix.IFF_UP == 0:
				down <- p.downReason()
				return
			}
		}
	}()
	return down, nil
}
