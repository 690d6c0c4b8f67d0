package ident

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// original asks connection tracking which connection a masqueraded one is: near is the gateway's end, far the peer. ok
// is false if there is none.
func original(near, far netip.AddrPort) (client netip.AddrPort, ok bool, err error) {
	c, ok, err := conntrack.FindByReply(conntrack.Tuple{From: far, To: near, Protocol: unix.IPPROTO_TCP})
	return c.Orig.From, ok, err
}
