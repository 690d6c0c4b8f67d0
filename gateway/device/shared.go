// Remembered devices that all gateways of a store have together.

package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// sharing has a gateway's remembered devices and those in the store be the same. Of two changes of a device the later
// one stays. The gateway's file is written first, so nothing waits for the store.
type sharing struct {
	*Remembered
	store *cluster.Store
	set   *cluster.Shared
	log   *slog.Logger

	wake    chan struct{}
	waiting sync.Mutex             // guards what follows
	changed map[datapath.MAC]bool  // not in the store yet
	told    map[datapath.MAC]Known // of the store, not in the file yet
}

var _ cluster.Copy = (*sharing)(nil)

// Share has all gateways of a store that share a kind remember the same devices, until leave is called. run writes to
// the store, and what that tells to the file, until its context ends. Share is called before the first change.
func (r *Remembered) Share(store *cluster.Store, kind string, log *slog.Logger) (run func(context.Context) error,
	leave func()) {
	s := &sharing{Remembered: r, store: store, log: log, wake: make(chan struct{}, 1), changed: map[datapath.MAC]bool{},
		told: map[datapath.MAC]Known{}}
	r.shared = s
	s.set, leave = store.Share(kind, s)
	return s.run, leave
}

// tell has a device's record written to the store.
func (s *sharing) tell(mac datapath.MAC) {
	s.waiting.Lock()
	s.changed[mac] = true
	s.waiting.Unlock()
	s.signal()
}

func (s *sharing) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run writes changes to the store, and those of others to the file, until ctx ends. What it cannot write, the next
// comparison does.
func (s *sharing) run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		s.waiting.Lock()
		all, told := s.changed, s.told
		s.changed, s.told = map[datapath.MAC]bool{}, map[datapath.MAC]Known{}
		s.waiting.Unlock()
		for _, k := range told {
			s.adopt(k)
		}
		for mac := range all {
			if err := s.writeToStore(ctx, mac); err != nil {
				s.set.Doubt()
				break
			}
		}
	}
}

// errOthers means that others change a record all the time.
var errOthers = errors.New("others change it")

// writeToStore writes a device's record to the store, unless that has a later one.
func (s *sharing) writeToStore(ctx context.Context, mac datapath.MAC) error {
	key := net.HardwareAddr(mac[:]).String()
	for range 3 {
		r, err := s.set.Get(ctx, key)
		if err != nil {
			return err
		}
		content := s.contentOf(mac)
		k, err := decodeKnown(mac, r.Content)
		over := content == nil && err == nil && s.over(k.moved(-s.shift()))
		if r.Version != 0 && !over {
			content = s.Told(key, r)
		}
		if content == nil && !over {
			return nil
		}
		out, err := s.set.Write(ctx, cluster.Change{Key: key, Content: content, Version: r.Version})
		if err != nil || out[0].Done {
			return err
		}
	}
	return errOthers
}

// contentOf is a device's record as the store has it; nil: it has none.
func (s *sharing) contentOf(mac datapath.MAC) []byte {
	k, known := s.current(mac)
	if !known {
		return nil
	}
	return s.encoded(k)
}

// over reports whether a record has no effect any more.
func (s *sharing) over(k Known) bool { return !s.now().Before(later(k.Until, k.Kept)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// shift is how far the store's clock is ahead of the folder's time line.
func (s *sharing) shift() time.Duration {
	now, asked := s.store.Now()
	if asked.IsZero() {
		return 0
	}
	return now.Sub(s.now())
}

// moved returns a device with its times moved, but for Changed, which is of the store's clock everywhere.
func (k Known) moved(by time.Duration) Known {
	for _, t := range []*time.Time{&k.Since, &k.Until, &k.Kept} {
		if !t.IsZero() {
			*t = t.Add(by).Round(time.Millisecond)
		}
	}
	return k
}

func (s *sharing) encoded(k Known) []byte {
	data, err := json.Marshal(k.moved(s.shift()))
	if err != nil {
		s.log.Error("encoding a remembered device", "err", err)
	}
	return data
}

// Records implements cluster.Copy.
func (s *sharing) Records(visit func(key string, content []byte) error) error {
	s.mu.Lock()
	all := map[string][]byte{}
	for _, devices := range []map[datapath.MAC]Known{s.devices, s.forgotten} {
		for mac, k := range devices {
			all[net.HardwareAddr(mac[:]).String()] = s.encoded(k)
		}
	}
	s.mu.Unlock()
	for key, content := range all {
		if err := visit(key, content); err != nil {
			return err
		}
	}
	return nil
}

// Told implements cluster.Copy.
func (s *sharing) Told(key string, r cluster.Record) (instead []byte) {
	addr, err := net.ParseMAC(key)
	if err == nil && len(addr) != len(datapath.MAC{}) {
		err = errors.New("it is no MAC address of Ethernet")
	}
	var k Known
	if err == nil {
		k, err = decodeKnown(datapath.MAC(addr), r.Content)
	}
	if err != nil {
		s.log.Error("a remembered device in the store is nothing that gatewayd writes", "device", key, "err", err)
		return nil
	}
	if k = k.moved(-s.shift()); s.over(k) {
		return nil
	}
	mine, known := s.current(k.MAC)
	switch {
	case known && mine.Changed.After(k.Changed):
		return s.encoded(mine)
	case known && mine.Changed.Equal(k.Changed):
		return nil
	}
	s.waiting.Lock()
	if had, waits := s.told[k.MAC]; !waits || !had.Changed.After(k.Changed) {
		s.told[k.MAC] = k // the disk may be slow, and the feed tells of all kinds
	}
	s.waiting.Unlock()
	s.signal()
	return nil
}

// current is what the gateway has of a device, remembered or forgotten.
func (s *sharing) current(mac datapath.MAC) (k Known, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known = s.devices[mac]; !known {
		k, known = s.forgotten[mac]
	}
	return k, known
}

// adopt brings what the store told into the file, unless the gateway has changed the device later: that is written to
// the store.
func (s *sharing) adopt(k Known) {
	turn := s.turn(k.MAC)
	turn.Lock()
	defer turn.Unlock()
	mine, known := s.current(k.MAC)
	switch {
	case known && mine.Changed.After(k.Changed):
		s.tell(k.MAC)
	case known && mine.Changed.Equal(k.Changed):
	default:
		if err := s.put(k); err != nil {
			s.log.Error("which devices other gateways remember is not on the disk", "device",
				net.HardwareAddr(k.MAC[:]).String(), "err", err)
		}
	}
}

// put replaces a device's record by one of the store. The device's turn is held.
func (s *sharing) put(k Known) error {
	record, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encoding a remembered device: %w", err)
	}
	s.mu.Lock()
	delete(s.devices, k.MAC)
	s.mu.Unlock()
	if !k.Forgotten {
		if err := s.makeRoom(k.MAC); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.keep(k)
	s.mu.Unlock()
	return s.Remembered.store.Write(k.MAC, record)
}

// Synced implements cluster.Copy.
func (s *sharing) Synced(bool) {}
