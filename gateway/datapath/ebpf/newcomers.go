// Hosts with an address that was not leased. The programs report them in a ring buffer.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// reportNewcomers reports newcomers until Close, several at once: each waits for the disk, and those that
// wait together are written together.
func (d *Datapath) reportNewcomers() error {
	if d.cfg.Newcomer == nil {
		return nil
	}
	r, err := ringbuf.NewReader(d.objs.Newcomers)
	if err != nil {
		return fmt.Errorf("listening for newcomers: %w", err)
	}
	answers, err := arp.Respond(d.lan, d.net.Gateway(), false)
	if err != nil {
		r.Close()
		return err
	}
	var running sync.WaitGroup
	stop := d.stop
	d.stop = sync.OnceFunc(func() { r.Close(); stop(); running.Wait(); answers.Close() })
	type arrival struct {
		addr netip.Addr
		mac  datapath.MAC
	}
	arrived := make(chan arrival)
	for range datapath.ParallelNewcomers {
		running.Go(func() {
			for c := range arrived {
				d.welcome(answers, c.addr, c.mac)
			}
		})
	}
	running.Go(func() {
		defer close(arrived)
		for {
			record, err := r.Read()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if addr, mac, ok := newcomer(record.RawSample); err == nil && ok {
				arrived <- arrival{addr, mac}
			}
		}
	})
	return nil
}

// welcome reports a newcomer, unless an earlier packet of its made it a client, and answers one that is a client then:
// lan_in drops the ARP requests of all others.
func (d *Datapath) welcome(answers *arp.Responder, addr netip.Addr, mac datapath.MAC) {
	if !d.neighbours.Has(addr, mac) {
		d.cfg.Newcomer(addr, mac)
	}
	if !d.neighbours.Has(addr, mac) {
		return
	}
	if err := answers.Answer(addr, mac); err != nil {
		d.cfg.Log.Debug("welcoming a newcomer", "err", err)
	}
}

// newcomer decodes struct newcomer of maps.h.
func newcomer(b []byte) (addr netip.Addr, mac datapath.MAC, ok bool) {
	if len(b) < 10 {
		return addr, mac, false
	}
	return netip.AddrFrom4([4]byte(b[:4])), datapath.MAC(b[4:10]), true
}

// lanMTU is the LAN's present MTU, 0 if it cannot be read.
func (d *Datapath) lanMTU() uint32 {
	dev, err := net.InterfaceByName(d.net.Interface)
	if err != nil {
		return 0
	}
	return uint32(dev.MTU)
}
