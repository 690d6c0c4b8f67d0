package ident

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// masqueradedClient asks connection tracking for the client's end of a masqueraded TCP connection. near is the
// connection's end at the gateway, far the peer. ok is false if there is no such connection.
func masqueradedClient(near, far netip.AddrPort) (client netip.AddrPort, ok bool, err error) {
	c, ok, err := conntrack.FindByReply(conntrack.Tuple{From: far, To: near, Protocol: unix.IPPROTO_TCP})
	return c.Orig.From, ok, err
}
