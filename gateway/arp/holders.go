package arp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxHolders bounds the devices that are noted of those that answer for one address.
const maxHolders = 8

// Holders asks all hosts who has an address, as a host does before it takes one (RFC 5227, 2.1.1), and returns the MAC
// addresses of those that answered, in their order; at most maxHolders. It takes some 2 s. The Prober needs
// AllProtocols where a data path drops frames of devices that are no clients. The error is ErrBusy, ctx's, or that of
// the interface.
func (p *Prober) Holders(ctx context.Context, addr netip.Addr) ([]MAC, error) {
	everybody := host{addr: addr}
	q, err := p.addQuestion(everybody)
	if err != nil {
		return nil, err
	}
	defer p.removeQuestion(everybody)
	for range probes {
		if err := p.sendRequest(addr); err != nil {
			return nil, fmt.Errorf("asking who has %s: %w", addr, err)
		}
		wait := time.NewTimer(cmp.Or(p.pause, defaultPause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil, ctx.Err()
		case <-wait.C:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(q.holders), nil
}

// note records a device that answered. The Prober's mu is held.
func (q *question) note(mac MAC) {
	if len(q.holders) < maxHolders && !slices.Contains(q.holders, mac) {
		q.holders = append(q.holders, mac)
	}
}

// ignoreOutgoing keeps frames that this machine sends from a socket, so that each need not be copied for it. Kernels
// before 4.20 copy them.
func ignoreOutgoing(conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	})
	if errors.Is(set, unix.ENOPROTOOPT) {
		set = nil
	}
	return errors.Join(err, set)
}
