package send

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errGone: see Sender.Wait.
var errGone = errors.New("the link was removed")

// port is a packet socket bound to a link. It belongs to the network namespace in which it was opened, whichever
// thread uses it later, and receives nothing.
type port struct {
	fd    int
	name  string
	index int
	mtu   int
}

func openPort(name string) (*port, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("opening a packet socket: %w: run as root, or with CAP_NET_RAW", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	p := &port{fd: fd, name: name}
	if err := p.bind(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return p, nil
}

func (p *port) bind() error {
	ask := func(request uint) (*unix.Ifreq, error) {
		r, err := unix.NewIfreq(p.name)
		if err != nil {
			return nil, fmt.Errorf("link name %q: %w", p.name, err)
		}
		return r, unix.IoctlIfreq(p.fd, request, r)
	}
	r, err := ask(unix.SIOCGIFINDEX)
	if err != nil {
		return fmt.Errorf("no link %q here: %w", p.name, err)
	}
	p.index = int(r.Uint32())
	if r, err = ask(unix.SIOCGIFHWADDR); err != nil {
		return fmt.Errorf("asking for the kind of %s: %w", p.name, err)
	}
	// A link's own loopback has Ethernet's form too.
	if kind := r.Uint16(); kind != unix.ARPHRD_ETHER && kind != unix.ARPHRD_LOOPBACK {
		return fmt.Errorf("%s is not an Ethernet link (kind %d)", p.name, kind)
	}
	if r, err = ask(unix.SIOCGIFMTU); err != nil {
		return fmt.Errorf("asking for the MTU of %s: %w", p.name, err)
	}
	p.mtu = int(r.Uint32())
	if err := p.check(); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Ifindex: p.index}); err != nil {
		return fmt.Errorf("binding a packet socket to %s: %w", p.name, err)
	}
	return nil
}

// check reports why the link cannot send now.
func (p *port) check() error {
	r, err := unix.NewIfreq(p.name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, r); err != nil {
		return fmt.Errorf("%s: %w", p.name, errGone)
	}
	switch flags := int(r.Uint16()); {
	case flags&unix.IFF_UP == 0:
		return fmt.Errorf("%s is down: ip link set %s up", p.name, p.name)
	case flags&unix.IFF_RUNNING == 0:
		return fmt.Errorf("%s has no carrier: its other end is down or unplugged", p.name)
	}
	return nil
}

func (p *port) close() { unix.Close(p.fd) }
