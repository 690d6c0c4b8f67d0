package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// receiveBuffer is what a packet socket holds while its thread is busy, bytes of kernel
// memory: some 2,000 frames.
const receiveBuffer = 4 << 20

// sendBuffer is what a packet socket holds while packets arrive faster than the LAN
// transmits: as many of full size as the kernel's own queue of an interface. The default
// would be three aggregated ones.
const sendBuffer = 4 << 20

// forGateway passes untagged frames addressed to this host or to many. Others belong to
// another network on the same wire, or to another host: the interface is promiscuous.
var forGateway = []bpf.Instruction{
	bpf.LoadExtension{Num: bpf.ExtType},
	bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: 5},
	bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
	bpf.LoadExtension{Num: bpf.ExtVLANTag},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 18},
	bpf.RetConstant{Val: 0},
}

// openSocket opens a packet socket that receives nothing until listen. Each frame is
// received and sent with a virtio header, which describes the work left to be done.
func openSocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("setsockopt PACKET_VNET_HDR", err)
	}
	return fd, nil
}

// listen has a packet socket receive all frames of an interface, and makes the interface
// promiscuous while the socket is open.
func listen(fd int, lan *net.Interface) error {
	filter, err := bpf.Assemble(forGateway)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	attached := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &attached); err != nil {
		return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)
	}
	if err := errors.Join(sockbuf.Receive(fd, receiveBuffer), sockbuf.Send(fd, sendBuffer)); err != nil {
		return err
	}
	// Frames sent by this host do not come from clients.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return os.NewSyscallError("setsockopt PACKET_IGNORE_OUTGOING", err)
	}
	member := unix.PacketMreq{Ifindex: int32(lan.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &member); err != nil {
		return fmt.Errorf("making %s promiscuous: %w", lan.Name, err)
	}
	if err := unix.Bind(
		fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: lan.Index}); err != nil {
		return fmt.Errorf("binding the packet socket to %s: %w", lan.Name, err)
	}
	return nil
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}
