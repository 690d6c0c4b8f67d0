package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel's generic netlink family "netdev" (Documentation/netlink/specs/netdev.yaml; Linux 6.8): the command that
// lists NAPI instances, and attributes of an instance.
const (
	netdevNAPIGet = 11
	napiIfIndex   = 1
	napiThread    = 4 // absent: the instance has no thread
)

// NAPIThreads returns the ids of the threads that poll the given interfaces of the caller's network namespace, by
// interface name. Kernels before 6.8, and emulators such as qemu-user, do not tell the ids. There it finds the threads
// by their names (ThreadsNamed).
func NAPIThreads(ifnames []string) (map[string][]int, error) {
	threads, err := threadsOfNamespace()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return ThreadsNamed(ifnames)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for the threads that poll interfaces: %w", err)
	}
	found := map[string][]int{}
	for _, name := range ifnames {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		if list := threads[uint32(dev.Index)]; len(list) > 0 {
			found[name] = list
		}
	}
	return found, nil
}

// threadsOfNamespace lists the polling threads of the caller's network namespace, by the index of their interface. The
// error is fs.ErrNotExist on a kernel without the family "netdev", and EOPNOTSUPP on one whose family lacks the
// command.
func threadsOfNamespace() (map[uint32][]int, error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	// The library sends four bytes for a Genlmsg, which has two: the two after it are the header's reserved ones.
	header := struct {
		nl.Genlmsg
		reserved uint16
	}{Genlmsg: nl.Genlmsg{Command: netdevNAPIGet, Version: uint8(family.Version)}}
	req.AddData(&header.Genlmsg)
	found := map[uint32][]int{}
	return found, dump(req, func(body []byte) error {
		attrs, err := nl.ParseRouteAttr(body[nl.SizeofGenlmsg:])
		if err != nil {
			return err
		}
		var index, tid uint32
		for _, a := range attrs {
			if len(a.Value) < 4 {
				continue
			}
			switch value := binary.NativeEndian.Uint32(a.Value); a.Attr.Type {
			case napiIfIndex:
				index = value
			case napiThread:
				tid = value
			}
		}
		if tid != 0 {
			found[index] = append(found[index], int(tid))
		}
		return nil
	})
}

// dump sends a request and calls each with the body of every message of the answer, until the kernel ends the answer.
// The library's Execute would stop after the first message, because messages of this family lack the flag that more
// follow (NLM_F_MULTI).
func dump(req *nl.NetlinkRequest, each func(body []byte) error) error {
	s, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return err
	}
	if err := s.Send(req); err != nil {
		return err
	}
	for {
		messages, _, err := s.Receive()
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if len(m.Data) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(m.Data)); code < 0 {
						return unix.Errno(-code)
					}
				}
				return nil
			}
			if err := each(m.Data); err != nil {
				return err
			}
		}
	}
}

// ThreadsNamed returns the ids of the threads that are named after one of the interfaces, by interface name. It takes
// threads of all namespaces. The names of interfaces must differ in their first 10 bytes (see PollingThreads).
func ThreadsNamed(ifnames []string) (map[string][]int, error) {
	all, err := PollingThreads()
	found := map[string][]int{}
	for tid, name := range all {
		for _, ifname := range ifnames {
			if name == ifname || strings.HasPrefix(name, ifname+"-") {
				found[ifname] = append(found[ifname], tid)
			}
		}
	}
	return found, err
}
