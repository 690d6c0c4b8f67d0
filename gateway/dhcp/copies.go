package dhcp

import (
	"fmt"
	"net/netip"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Copy is a record of a lease in another gateway's file.
type Copy struct {
	Record []byte
	Shift  time.Duration // what to add to its time to have one of this gateway's time line
}

// Records calls visit with each record of the file, until visit fails. A record is valid during the call.
func (s *Server) Records(visit func(addr string, record []byte) error) (err error) {
	failed := s.store.Each(func(key, value []byte) {
		if addr, ok := netip.AddrFromSlice(key); ok && err == nil {
			err = visit(addr.String(), value)
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// Import writes records of another gateway to a file of leases that no Server has open, by their addresses. It leaves
// out what it cannot read.
func Import(path string, records map[netip.Addr]Copy) error {
	s, err := openStore(path)
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.Update(func(b *bolt.Bucket) error {
		for addr, c := range records {
			r, err := decodeRecord(addr.AsSlice(), c.Record)
			if err != nil {
				continue
			}
			r.end = r.end.Add(c.Shift)
			if err := b.Put(addr.AsSlice(), r.encode()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copying leases to %s: %w", path, err)
	}
	return nil
}
