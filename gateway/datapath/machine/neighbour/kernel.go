package neighbour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

const ndaProtocol = 12 // NDA_PROTOCOL

// atOnce is how many entries one system call changes, at most. Answers come for refused ones only, and a socket holds
// some hundred.
const atOnce = 128

// entry is a change of the kernel's table.
type entry struct {
	addr    netip.Addr
	mac     datapath.MAC
	remove  bool // remove the entry, which may not exist
	replace bool // replace an entry that the kernel has for the address; otherwise that entry stays
}

// conn is a netlink socket. The kernel carries out what is sent before the system call returns, and answers refused
// messages only: sending waits for nothing.
type conn struct {
	fd  int
	buf []byte
}

func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)) // no copies of what was refused
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &conn{fd: fd, buf: make([]byte, 1<<16)}, nil
}

func (c *conn) close() error {
	if c == nil {
		return nil
	}
	return unix.Close(c.fd)
}

// setEntries changes entries of an interface. It returns the entries whose address has one already, the number of
// others that were refused, and one of the reasons.
func (c *conn) setEntries(index int, list []entry) (entries []entry, refused int, err error) {
	var b []byte
	for i, e := range list {
		m := change(index, e)
		m.Header.Sequence = uint32(i) // by which an answer names its message
		raw, err := m.MarshalBinary()
		if err != nil {
			return nil, len(list), err
		}
		b = append(b, raw...)
	}
	if err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, len(list), fmt.Errorf("sending %d entries: %w", len(list), err)
	}
	for {
		n, _, err2 := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT)
		switch {
		case err2 == unix.EINTR:
		case err2 == unix.EAGAIN:
			return entries, refused, err
		case err2 != nil: // ENOBUFS: answers were lost
			return entries, len(list), err2
		default:
			e, err2 := answer(c.buf[:n], list)
			if errors.Is(err2, unix.EEXIST) {
				entries = append(entries, e)
			} else if err2 != nil {
				refused, err = refused+1, err2
			}
		}
	}
}

// answer returns the entry of a message that the kernel refused, and why. The error is nil if the kernel refused none,
// or had no entry to remove.
func answer(b []byte, list []entry) (entry, error) {
	const header, code = unix.SizeofNlMsghdr, 4
	if len(b) < header+code || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return entry{}, nil
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b[header:])))
	at := binary.NativeEndian.Uint32(b[8:])
	if errno == 0 || at >= uint32(len(list)) || list[at].remove && errno == unix.ENOENT {
		return entry{}, nil
	}
	return list[at], fmt.Errorf("%s at %s: %w", list[at].addr, net.HardwareAddr(list[at].mac[:]), errno)
}

// change returns the message that makes or removes an entry.
func change(index int, e entry) netlink.Message {
	m := netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWNEIGH, Flags: netlink.Request | netlink.Create | netlink.Excl}}
	if e.replace {
		m.Header.Flags = netlink.Request | netlink.Create | netlink.Replace
	}
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.NDA_DST, e.addr.AsSlice())
	if e.remove {
		m.Header.Type, m.Header.Flags = unix.RTM_DELNEIGH, netlink.Request
	} else {
		attrs.Bytes(unix.NDA_LLADDR, e.mac[:])
		attrs.Uint8(ndaProtocol, stack.OwnProtocol)
	}
	m.Data = append(ndmsg(familyOf(e.addr), index, unix.NUD_PERMANENT), encoded(attrs)...)
	m.Header.Length = uint32(unix.SizeofNlMsghdr + len(m.Data)) // a multiple of 4, as attributes are
	return m
}

// encoded returns attributes, which have no values that could fail.
func encoded(attrs *netlink.AttributeEncoder) []byte {
	b, err := attrs.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

// familyOf returns an address's family, AF_INET or AF_INET6.
func familyOf(addr netip.Addr) byte {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ndmsg returns a struct ndmsg.
func ndmsg(family byte, index int, state uint16) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint16(b[8:], state)
	return b
}

// found is an entry that the kernel's table has.
type found struct {
	addr       netip.Addr
	mac        datapath.MAC
	static     bool // nothing that arrives changes it
	isGatewayd bool // gatewayd's, and static
}

// get returns an interface's entry for an address; the zero value if there is none.
func get(index int, addr netip.Addr) (found, error) {
	nl, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return found{}, err
	}
	defer nl.Close()
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.NDA_DST, addr.AsSlice())
	got, err := nl.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request},
		Data:   append(ndmsg(familyOf(addr), index, 0), encoded(attrs)...),
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return found{}, fmt.Errorf("looking for the neighbour %s: %w", addr, err)
	}
	for _, m := range got {
		if f, ok := parse(m.Data, index); ok {
			return f, nil
		}
	}
	return found{}, nil
}

// list returns gatewayd's entries of an interface. Entries that others change meanwhile may be missing.
func list(index int) (map[netip.Addr]datapath.MAC, error) {
	nl, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("listing neighbours: %w", err)
	}
	defer nl.Close()
	attrs := netlink.NewAttributeEncoder()
	attrs.Uint32(unix.NDA_IFINDEX, uint32(index))
	got, err := stack.ConsistentList(func() ([]netlink.Message, error) {
		return wholeList(nl.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request | netlink.Dump},
			Data:   append(ndmsg(unix.AF_UNSPEC, 0, 0), encoded(attrs)...),
		}))
	})
	if err != nil {
		return nil, fmt.Errorf("listing neighbours: %w", err)
	}
	all := map[netip.Addr]datapath.MAC{}
	for _, m := range got {
		if f, _ := parse(m.Data, index); f.isGatewayd {
			all[f.addr] = f.mac
		}
	}
	return all, nil
}

// wholeList returns a list's messages. If the kernel has marked the list as changed while it was read, it returns
// stack.ErrChanged, after which stack.ConsistentList reads the list again.
func wholeList(all []netlink.Message, err error) ([]netlink.Message, error) {
	for _, m := range all {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return nil, stack.ErrChanged
		}
	}
	return all, err
}

// parse reads an entry of the interface.
func parse(b []byte, index int) (f found, ok bool) {
	if len(b) < unix.SizeofNdMsg || binary.NativeEndian.Uint32(b[4:]) != uint32(index) {
		return found{}, false
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofNdMsg:])
	if err != nil {
		return found{}, false
	}
	f.static = binary.NativeEndian.Uint16(b[8:])&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0
	for attrs.Next() {
		switch v := attrs.Bytes(); {
		case attrs.Type() == unix.NDA_DST:
			f.addr, _ = netip.AddrFromSlice(v)
		case attrs.Type() == unix.NDA_LLADDR && len(v) == len(f.mac):
			f.mac = datapath.MAC(v)
		case attrs.Type() == ndaProtocol && len(v) == 1:
			f.isGatewayd = f.static && v[0] == stack.OwnProtocol
		}
	}
	if attrs.Err() != nil || !f.addr.IsValid() || b[0] != familyOf(f.addr) {
		return found{}, false
	}
	return f, true
}

// Remove removes gatewayd's entries of an interface. A missing interface has none.
func Remove(name string) error {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	have, err := list(dev.Index)
	if err != nil || len(have) == 0 {
		return err
	}
	c, err := dial()
	if err != nil {
		return fmt.Errorf("removing neighbours: %w", err)
	}
	defer c.close()
	var all []entry
	for addr, mac := range have {
		all = append(all, entry{addr: addr, mac: mac, remove: true})
	}
	for len(all) > 0 {
		batch := all[:min(atOnce, len(all))]
		if _, _, err := c.setEntries(dev.Index, batch); err != nil {
			return fmt.Errorf("removing neighbours from %s: %w", name, err)
		}
		all = all[len(batch):]
	}
	return nil
}
