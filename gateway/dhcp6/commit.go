package dhcp6

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxPending bounds the messages whose changes wait for the disk. Further ones get no answer, and their clients repeat
	// them seconds later.
	maxPending = 8192
	maxBatch   = 1024 // messages whose changes are written together
	lanes      = 16   // calls of Events at once
)

// job is what a message or the end of leases changes. It is written to the store, then reported to Events; then the
// client is answered.
type job struct {
	mac     MAC
	records []Record
	ended   []Lease
	leased  []Lease
	items   []*item // of leased, in the same order
	frame   []byte  // nil: none
}

// push queues the changes of an outcome, and the frame with its answer; nil: none. s.mu is held, so changes are in
// the table's order.
func (s *Server) push(mac MAC, result outcome, frame []byte) {
	one := job{mac: mac, ended: result.ended, items: result.granted, frame: frame}
	for _, it := range result.granted {
		one.leased = append(one.leased, it.lease())
	}
	for _, id := range result.touched {
		one.records = append(one.records, s.table.record(id))
	}
	s.pending = append(s.pending, one)
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// record returns what is stored of an identity.
func (t *table) record(id identity) Record {
	r := Record{Kind: id.kind, MAC: id.mac, Session: id.session, IAID: id.iaid, DUID: id.duid}
	if b := t.byClient[id]; b != nil {
		r.Via = b.via
		for _, it := range b.items {
			r.Items = append(r.Items, Item{it.prefix, it.end, it.wished})
		}
	}
	return r
}

// takeJobs returns jobs that can be carried out together: one that leases what another client has lost in the same
// batch waits for the next, because clients are reported to side by side.
func (s *Server) takeJobs() []job {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[netip.Prefix]MAC{}
	n := 0
	for ; n < min(len(s.pending), maxBatch); n++ {
		one := &s.pending[n]
		if one.conflicts(lost) {
			break
		}
		for _, lease := range one.ended {
			lost[lease.Prefix] = one.mac
		}
	}
	batch := s.pending[:n:n]
	if s.pending = s.pending[n:]; len(s.pending) == 0 {
		s.pending = nil
	}
	return batch
}

func (j *job) conflicts(lost map[netip.Prefix]MAC) bool {
	for _, lease := range j.leased {
		if mac, was := lost[lease.Prefix]; was && mac != j.mac {
			return true
		}
	}
	return false
}

// commitAll carries out changes until ctx ends, and then the rest of them.
func (s *Server) commitAll(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-s.wake:
		case <-ctx.Done():
			done = true
		}
		for batch := s.takeJobs(); len(batch) > 0; batch = s.takeJobs() {
			s.commit(batch)
		}
	}
}

// commit writes a batch and then reports it, in lanes: jobs of one client are always in the same lane and stay in
// order.
func (s *Server) commit(batch []job) {
	var records []Record
	for _, one := range batch {
		records = append(records, one.records...)
	}
	err := s.cfg.Store.Write(records)
	if err != nil { // most likely a full disk: ADVERTISEs continue, so that clients keep trying
		s.stats.storeErrors.Add(1)
		s.refusalLog.Do(func() {
			s.log.Error("writing IPv6 leases: clients get none until this is mended: free space there, if that is why",
				"err", err)
		})
	}
	var lane [lanes][]job
	for _, one := range batch {
		i := one.mac[5] % lanes
		lane[i] = append(lane[i], one)
	}
	var running sync.WaitGroup
	for _, jobs := range lane {
		if len(jobs) > 0 {
			running.Go(func() {
				for _, one := range jobs {
					s.report(one, err == nil)
				}
			})
		}
	}
	running.Wait()
}

// report reports a job's changes to Events and the client. The end of a lease counts even if it is not on disk: after a
// restart its time will have passed.
func (s *Server) report(one job, written bool) {
	for _, lease := range one.ended {
		if err := s.events.Released(lease); err != nil {
			s.stats.eventErrors.Add(1)
			s.refused.Do(func() { s.log.Error("ending a lease", "mac", hardware(lease.MAC), "of", lease.Prefix, "err", err) })
		}
	}
	for _, lease := range one.leased {
		if !written {
			break
		}
		if err := s.events.Leased(lease); err != nil {
			written = false
			s.stats.eventErrors.Add(1)
			s.refused.Do(func() {
				s.log.Error("admitting a lease: its client gets no answer", "mac", hardware(lease.MAC), "of", lease.Prefix,
					"err", err)
			})
		}
	}
	s.confirm(one, written, time.Now())
	if one.frame != nil && (written || len(one.items) == 0) {
		s.send(one.frame)
	}
}

// confirm records in the table whether leases stand. New ones that do not are kept for a moment for their client's next
// try.
func (s *Server) confirm(one job, stands bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range one.items {
		switch {
		case stands:
			it.acked = true
		case !it.acked && it.Queued() && it.end.Equal(one.leased[i].End): // no later message has extended it
			s.table.extend(it, now.Add(retryTime))
		}
	}
}
