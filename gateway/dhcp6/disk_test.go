package dhcp6

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// disk is a file whose writes wait or fail.
type disk struct {
	*File
	full    atomic.Bool
	waiting chan bool // nil: writes do not wait
}

func (d *disk) Write(records []Record) error {
	if d.waiting != nil {
		<-d.waiting
	}
	if d.full.Load() {
		return errors.New("no space left on device")
	}
	return d.File.Write(records)
}

// TestFullDisk: nobody gets a lease that is not on disk, and clients go on trying.
func TestFullDisk(t *testing.T) {
	w := newWire(t, newLAN(t))
	full := &disk{}
	run := start(t, leasesFile(t), func(cfg *Config) {
		full.File = cfg.Store.(*File)
		cfg.Store = full
	})
	full.full.Store(true)
	st := stationOf(1)
	w.send(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1)))
	await(t, "the failure", func() bool { return run.Stats().StoreErrors > 0 })
	if r, _ := w.ask(st, w.message(dhcpv6.MessageTypeSolicit, st, iaNA(1))); len(addrsOf(r)) != 1 {
		t.Errorf("to a SOLICIT: %s", r.LongString(0))
	}
	if lines := run.all(); len(lines) > 0 {
		t.Errorf("events %v", lines)
	}
	full.full.Store(false)
	addr := w.lease(st, 1)
	if !run.has("leased " + hardware(st.mac) + " " + addr.String() + "/128") {
		t.Errorf("events %v", run.all())
	}
}

// TestSlowDisk: while the disk is behind, no more messages wait than may, and what needs no disk is answered.
func TestSlowDisk(t *testing.T) {
	w := newWire(t, newLAN(t))
	slow := &disk{waiting: make(chan bool)}
	run := start(t, leasesFile(t), func(cfg *Config) {
		slow.File = cfg.Store.(*File)
		cfg.Store = slow
	})
	probe := w.message(dhcpv6.MessageTypeInformationRequest, stationOf(0))
	for i := range maxPending + maxBatch + 100 {
		st := stationOf(1 + i)
		w.send(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1)))
		if i%1000 == 0 { // so that none is lost on its way
			w.ask(stationOf(0), probe)
		}
	}
	w.ask(stationOf(0), probe)
	st := run.Stats()
	if st.Overloaded < 100 || st.Addresses > maxPending+maxBatch || st.Addresses < maxPending {
		t.Errorf("stats %+v", st)
	}
	close(slow.waiting)
	await(t, "the disk", func() bool {
		run.Server.mu.Lock()
		defer run.Server.mu.Unlock()
		return len(run.pending) == 0
	})
	late := stationOf(99_999)
	w.lease(late, 1)
}
