package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Flows of IPv6 are cached as those of IPv4 (flows.go), in a table of their own (flow6.h). They are not translated: a
// flow that netfilter translates is the stack's. Beside DSCP the flow label is compared, by which routes of several
// next hops choose.

// uncached6 is uncached for IPv6.
func (d *Datapath) uncached6(r reasons) string {
	switch {
	case !d.has6():
		return "clients have no IPv6"
	case d.cfg.Flows:
		return "the stack counts connections' packets for the log (flowlog.enabled)"
	}
	return d.uncached(r, r.ruled6, r.variance6)
}

// caching6 reports whether flows of IPv6 are cached. mu is held.
func (d *Datapath) caching6() bool { return d.stackReason6 != "" && d.uncachedWhy6 == "" }

// mix6 is mix6 in flow6.h.
func mix6(client, remote gatewayAddr6, clientPort, remotePort uint16) uint64 {
	const odd = 0x9e3779b97f4a7c15
	return (client.Low ^ remote.Low*odd ^ remote.High ^ uint64(clientPort)<<24 ^ uint64(remotePort)<<40) * odd
}

// forget6 is Forget for the packets of one direction of a connection by IPv6.
func (d *Datapath) forget6(w datapath.Tracked) error {
	k := gatewayFlow6Key{
		Saddr: key6(w.From.Addr()), Daddr: key6(w.To.Addr()), Sport: networkPort(w.From.Port()),
		Dport: networkPort(w.To.Port()), Protocol: uint16(w.Protocol),
	}
	for _, side := range []uint16{fromLAN, fromWAN} {
		k.Side = side
		if err := d.objs.Flow6Paths.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forgetting a flow from %s to %s: %w", w.From, w.To, err)
		}
	}
	for _, mixed := range []uint64{
		mix6(k.Saddr, k.Daddr, k.Sport, k.Dport), mix6(k.Daddr, k.Saddr, k.Dport, k.Sport)} {
		// programs count from 0 on: the time is another stamp than any of theirs
		if err := d.objs.Flow6Stamps.Put(uint32(mixed>>48), now()); err != nil {
			return fmt.Errorf("forgetting a flow from %s to %s: %w", w.From, w.To, err)
		}
	}
	return nil
}
