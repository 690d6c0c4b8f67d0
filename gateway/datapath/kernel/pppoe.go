package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// A subscriber's session in the kernel:
//
//	frames of the session ──▶ PPPoX socket = channel ──┬─▶ unit ──▶ interface ──▶ stack
//	                             │ LCP, PAP, CHAP      │ NCPs
//	                             ▼                     ▼
//	                          channel.Read          unit.Read
//
// The channel ends when the socket is closed, and the interface when the unit is closed. If a keeper has the same
// files, closing them ends nothing: then disconnect and close end both by other means.
type pppoeSession struct {
	key           sessionKey
	carried, used bool // by the concentrator, by a client; the data path's mu guards them

	socket  int  // AF_PPPOX, connected to the session
	channel int  // /dev/ppp
	unit    int  // /dev/ppp; -1: the session has no interface
	index   int  // of the interface
	policed bool // it has limits of rates, or had
	kept    bool // a keeper has the files too
	lan     string
}

// devicePath is the file of channels and units.
const devicePath = "/dev/ppp"

// family and protocol of PPPoX sockets (linux/if_pppox.h).
const protocolPPPoE = 0

// takeSession takes the frames of a session, so that channel receives those of control protocols. IP packets go nowhere
// until connect.
func takeSession(lan string, s sessionKey) (l *pppoeSession, err error) {
	l = &pppoeSession{key: s, socket: -1, channel: -1, unit: -1, lan: lan}
	defer func() {
		if err != nil {
			l.close()
			l = nil
		}
	}()
	if l.socket, err = pppox(); err != nil {
		return l, err
	}
	if err = unix.Connect(l.socket, &unix.SockaddrPPPoE{SID: s.id, Remote: s.mac[:], Dev: lan}); err != nil {
		return l, fmt.Errorf("taking the PPPoE session %d of %s: %w", s.id, net.HardwareAddr(s.mac[:]), err)
	}
	number, err := unix.IoctlGetInt(l.socket, unix.PPPIOCGCHAN)
	if err != nil {
		return l, os.NewSyscallError("ioctl PPPIOCGCHAN", err)
	}
	if l.channel, err = openDevice(); err != nil {
		return l, err
	}
	if err = unix.IoctlSetPointerInt(l.channel, unix.PPPIOCATTCHAN, number); err != nil {
		return l, os.NewSyscallError("ioctl PPPIOCATTCHAN", err)
	}
	return l, nil
}

// pppox makes a socket, which loads the kernel's module of PPPoE.
func pppox() (int, error) {
	fd, err := unix.Socket(unix.AF_PPPOX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocolPPPoE)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return -1, errMissing
	}
	if err != nil {
		return -1, fmt.Errorf("opening a PPPoE socket: %w", err)
	}
	return fd, nil
}

var errMissing = fmt.Errorf(
	"%w: the kernel has no PPPoE (modprobe pppoe; CONFIG_PPP, CONFIG_PPPOE)", datapath.ErrNotSupported)

// openDevice opens /dev/ppp for a channel or a unit.
func openDevice() (int, error) {
	fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, fmt.Errorf("%w: %s is missing (modprobe ppp_generic)", datapath.ErrNotSupported, devicePath)
	case err != nil:
		return -1, fmt.Errorf("opening %s: %w", devicePath, err)
	}
	return fd, nil
}

// connect makes the session's interface, which is down. It passes IPv6 packets, or drops them.
func (l *pppoeSession) connect(name string, mtu, group int, ipv6 bool) (err error) {
	if l.unit, err = openDevice(); err != nil {
		return err
	}
	if l.index, err = createUnit(l.unit, name, mtu, group); err != nil {
		return fmt.Errorf("making the interface %s: %w", name, err)
	}
	number, err := unix.IoctlGetInt(l.unit, unix.PPPIOCGUNIT)
	if err != nil {
		return os.NewSyscallError("ioctl PPPIOCGUNIT", err)
	}
	if err := unix.IoctlSetPointerInt(l.channel, unix.PPPIOCCONNECT, number); err != nil {
		return os.NewSyscallError("ioctl PPPIOCCONNECT", err)
	}
	if err := pass6(l.unit, ipv6); err != nil || !ipv6 {
		return err
	}
	if err := allow6(name); err != nil {
		return fmt.Errorf("switching IPv6 on at the interface %s: %w", name, err)
	}
	return nil
}

// disconnect ends the interface. The channel still receives frames of control protocols.
func (l *pppoeSession) disconnect() {
	if l.unit >= 0 {
		if l.kept && l.index > 0 {
			// It fails only if the interface is gone.
			_ = netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: l.index}})
		}
		unix.Close(l.unit)
		l.unit, l.index, l.policed = -1, 0, false
	}
}

// close ends the interface and gives the session's frames back.
func (l *pppoeSession) close() {
	l.disconnect()
	if l.kept && l.socket >= 0 {
		// Connecting to session 0 ends the socket's connection. It fails only if that has ended.
		const none = 0
		_ = unix.Connect(l.socket, &unix.SockaddrPPPoE{SID: none, Remote: l.key.mac[:], Dev: l.lan})
	}
	for _, fd := range []*int{&l.channel, &l.socket} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}
