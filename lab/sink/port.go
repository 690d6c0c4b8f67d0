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
	name  string
	index int
	mtu   int
	// loopback: each frame that leaves comes back.
	loopback bool
	ns       *netlink.Handle // the interface's network namespace, from whichever thread
}

func findPort(name string) (port, error) {
	ns, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return port{}, fmt.Errorf("asking for interfaces: %w", err)
	}
	l, err := ns.LinkByName(name)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		ns.Close()
		return port{}, &configError{"there is no such interface here: ip link shows which there are"}
	}
	if err != nil {
		ns.Close()
		return port{}, fmt.Errorf("asking for the interface: %w", err)
	}
	a := l.Attrs()
	p := port{name: name, index: a.Index, mtu: a.MTU, loopback: a.RawFlags&unix.IFF_LOOPBACK != 0, ns: ns}
	switch kind := a.EncapType; {
	case kind != "ether" && kind != "loopback":
		err = &configError{fmt.Sprintf("the interface carries %s: frames of Ethernet are captured", kind)}
	case a.RawFlags&unix.IFF_UP == 0:
		err = p.downError()
	}
	if err != nil {
		ns.Close()
	}
	return p, err
}

func (p port) downError() error {
	return fmt.Errorf("the interface is down: %s", quote.Command("ip", "link", "set", p.name, "up"))
}

// dropped is how many frames the interface says it has missed when it received them, and how many it says it has
// dropped; 0 where it is gone. It drops frames too that the sink has seen and that nobody else takes: of a protocol
// that nobody speaks.
func (p port) dropped() (missed, dropped int64) {
	l, err := p.ns.LinkByIndex(p.index)
	if err != nil || l.Attrs().Statistics == nil {
		return 0, 0
	}
	st := l.Attrs().Statistics
	return int64(st.RxMissedErrors + st.RxFifoErrors + st.RxOverErrors), int64(st.RxDropped)
}

// downReason says why the interface went down. It goes down before it is removed; the question waits for that.
func (p port) downReason() error {
	_, err := p.ns.LinkByIndex(p.index)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return errors.New("the interface was removed")
	}
	return p.downError()
}

// watch delivers an error when the interface goes down or away. It watches as long as the process lives.
func (p port) watch() (<-chan error, error) {
	updates := make(chan netlink.LinkUpdate, 16)
	fate := make(chan error, 1)
	if err := netlink.LinkSubscribe(updates, nil); err != nil {
		return nil, fmt.Errorf("watching the interface: %w", err)
	}
	go func() {
		for u := range updates {
			switch {
			case int(u.Index) != p.index || u.IfInfomsg.Family != unix.AF_UNSPEC:
			case u.Header.Type == unix.RTM_DELLINK || u.IfInfomsg.Flags&unix.IFF_UP == 0:
				fate <- p.downReason()
				return
			}
		}
	}()
	return fate, nil
}
