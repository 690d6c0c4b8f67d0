package ident

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// original asks connection tracking which connection a masqueraded one is: near is the
// gateway's end, far the peer. It looks up one entry by its reply, whatever the table's size.
// ok is false if there is none.
func original(near, far netip.AddrPort) (client netip.AddrPort, ok bool, err error) {
	e := netlink.NewAttributeEncoder()
	e.Nested(conntrack.TupleReply, func(t *netlink.AttributeEncoder) error {
		t.Nested(conntrack.TupleIP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(conntrack.IPSource, far.Addr().AsSlice())
			ip.Bytes(conntrack.IPDest, near.Addr().AsSlice())
			return nil
		})
		t.Nested(conntrack.TupleProto, func(p *netlink.AttributeEncoder) error {
			p.Uint8(conntrack.ProtoNumber, unix.IPPROTO_TCP)
			p.ByteOrder = binary.BigEndian
			p.Uint16(conntrack.ProtoSource, far.Port())
			p.Uint16(conntrack.ProtoDest, near.Port())
			return nil
		})
		return nil
	})
	attrs, err := e.Encode()
	if err != nil {
		return client, false, fmt.Errorf("asking connection tracking: %w", err)
	}
	// The answer is marked as one of several parts, of which there is no end but the acknowledgement.
	// nl stops there, while mdlayher's netlink waits for ever.
	r := nl.NewNetlinkRequest(conntrack.Get, unix.NLM_F_ACK)
	r.AddRawData(slices.Concat(conntrack.Header, attrs))
	answers, err := r.Execute(unix.NETLINK_NETFILTER, conntrack.New)
	if errors.Is(err, unix.ENOENT) {
		return client, false, nil
	}
	if err != nil {
		return client, false, fmt.Errorf("asking connection tracking: %w", err)
	}
	if len(answers) == 0 {
		return client, false, nil
	}
	c, err := conntrack.Read(answers[0])
	if err != nil {
		return client, false, fmt.Errorf("reading connection tracking's answer: %w", err)
	}
	return c.Orig.From, true, nil
}
