package send

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/quote"
)

var errLinkRemoved = errors.New("the link was removed")

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
	// The flags, read below, may be old: a link that is being removed goes down first, and the kernel notes a lost carrier
	// late. The question to the driver comes first, because it waits for such changes.
	carrier, err := p.carrier()
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", p.name, errLinkRemoved)
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, r); err != nil {
		return fmt.Errorf("%s: %w", p.name, errLinkRemoved)
	}
	flags := int(r.Uint16())
	if flags&unix.IFF_UP == 0 {
		return fmt.Errorf("%s is down: %s", p.name, quote.Command("ip", "link", "set", p.name, "up"))
	}
	if err != nil { // the driver does not answer the question
		carrier = flags&unix.IFF_RUNNING != 0
	}
	if !carrier {
		return fmt.Errorf("%s has no carrier: its other end is down or unplugged", p.name)
	}
	return nil
}

// carrier asks the link's driver (ethtool's ETHTOOL_GLINK).
func (p *port) carrier() (bool, error) {
	value := struct{ command, data uint32 }{command: unix.ETHTOOL_GLINK}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of the kernel's union
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], p.name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return false, errno
	}
	return value.data != 0, nil
}

func (p *port) close() { unix.Close(p.fd) }
