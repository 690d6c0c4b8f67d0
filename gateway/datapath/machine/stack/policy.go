package stack

import (
	"errors"
	"fmt"
	"syscall"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Messages and values of linux/xfrm.h.
const (
	xfrmGetDefault  = 0x28 // XFRM_MSG_GETDEFAULT
	xfrmPolicyGroup = 4    // XFRMNLGRP_POLICY
	xfrmBlock       = 1    // XFRM_USERPOLICY_BLOCK
)

// Policies describes IPsec policies (xfrm) that apply to forwarded IPv4 packets; "": there are none.
func Policies() (string, error) {
	all, err := ConsistentList(func() ([]netlink.XfrmPolicy, error) { return netlink.XfrmPolicyList(unix.AF_INET) })
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		return "", nil // a kernel without IPsec
	}
	if err != nil {
		return "", fmt.Errorf("listing IPsec policies: %w", err)
	}
	for _, p := range all {
		if p.Dir == netlink.XFRM_DIR_FWD || p.Dir == netlink.XFRM_DIR_OUT {
			return "there are IPsec policies (ip xfrm policy)", nil
		}
	}
	if blocks, err := blocksByDefault(); err != nil || !blocks {
		return "", err
	}
	return "IPsec's default policy blocks (ip xfrm policy getdefault)", nil
}

// blocksByDefault reports whether forwarded packets without a policy are dropped.
func blocksByDefault() (bool, error) {
	c, err := mdlayher.Dial(unix.NETLINK_XFRM, nil)
	if err != nil {
		return false, fmt.Errorf("reading IPsec's default policy: %w", err)
	}
	defer c.Close()
	answer, err := c.Execute(mdlayher.Message{
		// struct xfrm_userpolicy_default, and padding
		Header: mdlayher.Header{Type: xfrmGetDefault, Flags: mdlayher.Request}, Data: make([]byte, 4),
	})
	if errors.Is(err, syscall.EINVAL) {
		return false, nil // before Linux 5.15 they pass
	}
	if err != nil {
		return false, fmt.Errorf("reading IPsec's default policy: %w", err)
	}
	for _, m := range answer { // __u8 in, fwd, out
		if len(m.Data) >= 3 && (m.Data[1] == xfrmBlock || m.Data[2] == xfrmBlock) {
			return true, nil
		}
	}
	return false, nil
}
