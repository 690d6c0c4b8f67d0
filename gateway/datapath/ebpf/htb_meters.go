// How the meters of the programs (limit.h) follow the queues of classes (htb) in which packets beyond clients' rates
// wait.

package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// minLead is how far a meter's clock must be ahead of now before it is compared with the class: a shorter lead holds no
// packet back long enough to matter.
const minLead = 20 * time.Millisecond

// followClasses sets the meters of clients whose packets wait in classes of htb. A meter's clock is when the client's
// packets so far will have been sent at its rate. The programs advance it by each packet, but they do not see packets
// that pass a class without them, nor the headers of frames. So the clock is set to the bytes that wait in the class.
// mu is held.
func (d *Datapath) followClasses() error {
	s := &d.shaping
	var m gatewayMeters
	up, down := unsafe.Offsetof(m.Up)+unsafe.Offsetof(m.Up.Ns), unsafe.Offsetof(m.Down)+unsafe.Offsetof(m.Down.Ns)
	return errors.Join(d.followQueue(&s.wan, up, func(r rates) uint64 { return r.up }), d.followQueue(&s.lan, down, func(
		r rates) uint64 {
		return r.down
	}))
}

// followQueue sets the clocks of one direction. offset is the place of this clock in a client's meter. The programs
// change meters while all classes are read: so each clock is read again afterwards, and only the clock is written. mu
// is held.
func (d *Datapath) followQueue(q *queue, offset uintptr, rate func(rates) uint64) error {
	if q.holder != gatewayHolderHOLDER_CLASS {
		return nil
	}
	var waiting map[uint16]uint64
	for place, r := range d.shaping.heldRates {
		bps, position := rate(r), int64(place)*int64(unsafe.Sizeof(gatewayMeters{}))+int64(offset)
		if bps == 0 || minor(place) == 0 || d.shaping.policed[place] {
			continue
		}
		var clock [8]byte
		isAhead := func() (bool, error) {
			_, err := d.meters.ReadAt(clock[:], position)
			return binary.NativeEndian.Uint64(clock[:]) > now()+uint64(minLead), err
		}
		ahead, err := isAhead()
		if err == nil && ahead && waiting == nil {
			if waiting, err = q.backlogs(); err == nil {
				ahead, err = isAhead()
			}
		}
		if err == nil && ahead {
			bytes := waiting[minor(place)] * packetBytes / frameBytes
			binary.NativeEndian.PutUint64(clock[:], now()+bytes*8*uint64(time.Second/time.Microsecond)/max(bps/1000, 1))
			_, err = d.meters.WriteAt(clock[:], position)
		}
		if err != nil {
			return fmt.Errorf("setting a client's meter: %w", err)
		}
	}
	return nil
}
