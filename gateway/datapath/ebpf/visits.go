// What one device alone may reach before it logs in.

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

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
	if err := d.objs.Visits.Put(key, monotonic(until)); err != nil {
		return fmt.Errorf("opening %s for a device: %w", at, err)
	}
	return nil
}
