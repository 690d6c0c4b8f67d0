package ident

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of ctnetlink (linux, include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	ctNew = 1 << 8    // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW: of entries in answers
	ctGet = ctNew | 1 // IPCTNL_MSG_CT_GET

	ctaTupleOrig  = 1
	ctaTupleReply = 2

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPSource = 1
	ctaIPDest   = 2

	ctaProtoNumber = 1
	ctaProtoSource = 2
	ctaProtoDest   = 3
)

// original asks connection tracking which connection a masqueraded one is: near is the
// gateway's end, far the peer. It looks up one entry by its reply, whatever the table's size.
// ok is false if there is none.
func original(near, far netip.AddrPort) (client netip.AddrPort, ok bool, err error) {
	e := netlink.NewAttributeEncoder()
	e.Nested(ctaTupleReply, func(t *netlink.AttributeEncoder) error {
		t.Nested(ctaTupleIP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(ctaIPSource, far.Addr().AsSlice())
			ip.Bytes(ctaIPDest, near.Addr().AsSlice())
			return nil
		})
		t.Nested(ctaTupleProto, func(p *netlink.AttributeEncoder) error {
			p.Uint8(ctaProtoNumber, unix.IPPROTO_TCP)
			p.ByteOrder = binary.BigEndian
			p.Uint16(ctaProtoSource, far.Port())
			p.Uint16(ctaProtoDest, near.Port())
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
	r := nl.NewNetlinkRequest(ctGet, unix.NLM_F_ACK)
	r.AddRawData(append([]byte{unix.AF_INET, 0, 0, 0}, attrs...)) // struct nfgenmsg: the family, version 0, resource 0
	answers, err := r.Execute(unix.NETLINK_NETFILTER, ctNew)
	if errors.Is(err, unix.ENOENT) {
		return client, false, nil
	}
	if err != nil {
		return client, false, fmt.Errorf("asking connection tracking: %w", err)
	}
	for _, a := range answers {
		if client, err = source(a); err != nil || client.IsValid() {
			return client, err == nil, err
		}
	}
	return client, false, nil
}

// source returns the source of an entry's original direction; the zero value if the entry
// has none.
func source(entry []byte) (from netip.AddrPort, err error) {
	if len(entry) < 4 {
		return from, errors.New("connection tracking's answer is cut short")
	}
	var addr netip.Addr
	var port uint16
	d, err := netlink.NewAttributeDecoder(entry[4:])
	if err != nil {
		return from, fmt.Errorf("reading connection tracking's answer: %w", err)
	}
	for d.Next() {
		if d.Type() != ctaTupleOrig {
			continue
		}
		d.Nested(func(t *netlink.AttributeDecoder) error {
			for t.Next() {
				switch t.Type() {
				case ctaTupleIP:
					t.Nested(func(ip *netlink.AttributeDecoder) error {
						for ip.Next() {
							if ip.Type() == ctaIPSource {
								addr, _ = netip.AddrFromSlice(ip.Bytes())
							}
						}
						return nil
					})
				case ctaTupleProto:
					t.Nested(func(p *netlink.AttributeDecoder) error {
						p.ByteOrder = binary.BigEndian
						for p.Next() {
							if p.Type() == ctaProtoSource {
								port = p.Uint16()
							}
						}
						return nil
					})
				}
			}
			return nil
		})
	}
	if err := d.Err(); err != nil {
		return from, fmt.Errorf("reading connection tracking's answer: %w", err)
	}
	if addr.IsValid() {
		from = netip.AddrPortFrom(addr, port)
	}
	return from, nil
}
