// What one device alone may reach before it logs in.

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// OpenFor lets one device reach a TCP port of an address before it logs in, or ends that (datapath.Running).
func (d *Datapath) OpenFor(mac datapath.MAC, at netip.AddrPort, until time.Time) error {
	key := gatewayVisit{Mac: mac, Port: networkPort(at.Port()), Addr: at.Addr().As16()}
	if !until.After(time.Now()) {
		if err := d.objs.Visits.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("closing %s for a device: %w", at, err)
		}
		return nil
	}
	err := d.objs.Visits.Put(key, monotonic(until))
	if errors.Is(err, unix.E2BIG) && d.dropVisits() > 0 {
		err = d.objs.Visits.Put(key, monotonic(until))
	}
	if err != nil {
		return fmt.Errorf("opening %s for a device: %w", at, err)
	}
	return nil
}

// dropVisits deletes the visits that have ended, and returns how many there were.
func (d *Datapath) dropVisits() (dropped int) {
	var key gatewayVisit
	var ends uint64
	now := monotonic(time.Now())
	var ended []gatewayVisit
	for all := d.objs.Visits.Iterate(); all.Next(&key, &ends); {
		if ends <= now {
			ended = append(ended, key)
		}
	}
	for _, k := range ended {
		if d.objs.Visits.Delete(k) == nil {
			dropped++
		}
	}
	return dropped
}
