package dhcp

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	// maxPending bounds the changes that wait for the disk. Further clients get no answer and repeat their request seconds
	// later.
	maxPending = 8192
	maxBatch   = 1024 // changes written together
	lanes      = 16   // calls of the listener at once
)

// event is the kind of a change that the listener is told about.
type event uint8

const (
	nothing event = iota
	granted
	ended
)

// change is an address's new record. It is written to the disk, then reported to the listener; then the client is
// answered.
type change struct {
	record
	event event
	ack   []byte // frame
}

// push queues a change. s.mu is held, so changes are in the table's order.
func (s *Server) push(c change) {
	s.pending = append(s.pending, c)
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// takeChanges returns the waiting changes.
func (s *Server) takeChanges() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.pending), maxBatch)
	batch := s.pending[:n:n]
	if s.pending = s.pending[n:]; len(s.pending) == 0 {
		s.pending = nil
	}
	return batch
}

// commitAll carries out changes until ctx ends, and then the rest of them.
func (s *Server) commitAll(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-s.wake:
		case <-ctx.Done():
			done = true
		}
		for batch := s.takeChanges(); len(batch) > 0; batch = s.takeChanges() {
			s.commit(batch)
		}
	}
}

// commit writes a batch and then reports it, in lanes: changes of one address are always in the same lane and stay in
// order.
func (s *Server) commit(batch []change) {
	err := s.store.write(batch)
	if err != nil { // most likely a full disk: offers continue, so that clients keep trying
		s.stats.storeErrors.Add(1)
		s.refusalLog.Do(func() {
			s.log.Error("writing leases: clients get none until this is mended: free space there, if that is why",
				"file", s.cfg.Path, "err", err)
		})
	}
	if err == nil && s.cfg.Written != nil {
		s.store.tell(batch, s.cfg.Written)
	}
	var lane [lanes][]change
	for _, c := range batch {
		i := c.addr.As4()[3] % lanes
		lane[i] = append(lane[i], c)
	}
	var wg sync.WaitGroup
	for _, changes := range lane {
		if len(changes) > 0 {
			wg.Go(func() {
				for _, c := range changes {
					s.report(c, err == nil)
				}
			})
		}
	}
	wg.Wait()
}

// report reports a change to listener and client. The end of a lease counts even if it is not on disk: after a restart
// its time will have passed.
func (s *Server) report(c change, written bool) {
	mac := net.HardwareAddr(c.client.mac[:])
	switch {
	case c.event == ended:
		if err := s.listener.Released(mac, c.addr); err != nil {
			s.stats.listenerErrors.Add(1)
			s.refused.Do(func() { s.log.Error("ending a lease", "mac", mac.String(), "addr", c.addr, "err", err) })
		}
	case c.event == granted && !written:
		s.confirm(c, false)
	case c.event == granted:
		err := s.listener.Leased(c.lease(false))
		if err != nil {
			s.stats.listenerErrors.Add(1)
			s.refused.Do(func() {
				s.log.Error("admitting a lease: its client gets no answer", "mac", mac.String(), "addr", c.addr, "err", err)
			})
		}
		s.confirm(c, err == nil)
		if err == nil {
			s.stats.acks.Add(1) // counted before the ACK is sent, so that the count includes it when the client has it
			s.send(c.ack)
		}
	}
}

// confirm records in the table whether a lease stands.
func (s *Server) confirm(c change, stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	link := s.segmentOf(c.addr).table
	if !stands {
		link.unconfirm(c.client, c.addr, time.Now())
		return
	}
	if b := link.byAddr[c.addr]; b != nil && b.client.mac == c.client.mac && b.state == leased {
		b.acked = c.end
	}
}
