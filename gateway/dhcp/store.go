package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// record is an address's entry in the file of leases.
type record struct {
	addr     netip.Addr
	client   client
	hostname string
	state    state // known, leased or declined
	end      time.Time
}

func (b *binding) record() record {
	r := record{addr: b.addr, client: b.client, hostname: b.hostname, state: b.state, end: b.end}
	if r.state == reserved { // reserved addresses come from the configuration
		r.state = known
	}
	return r
}

const recordVersion = 1

var errRecord = errors.New("record of a lease is damaged")

// encode returns version, state, end (Unix time in ms), MAC, length of the client identifier, client identifier,
// hostname. The address is the key.
func (r record) encode() []byte {
	b := []byte{recordVersion, byte(r.state)}
	b = binary.BigEndian.AppendUint64(b, uint64(r.end.UnixMilli()))
	b = append(b, r.client.mac[:]...)
	b = append(b, byte(len(r.client.id)))
	b = append(b, r.client.id...)
	return append(b, r.hostname...)
}

// decodeRecord decodes a record that encode made.
func decodeRecord(key, value []byte) (record, error) {
	const fixed = 1 + 1 + 8 + 6 + 1
	addr, ok := netip.AddrFromSlice(key)
	if !ok || !addr.Is4() || len(value) < fixed || value[0] != recordVersion || len(value) < fixed+int(value[fixed-1]) {
		return record{}, errRecord
	}
	id := fixed + int(value[fixed-1])
	r := record{
		addr:  addr,
		state: state(value[1]),
		end:   time.UnixMilli(int64(binary.BigEndian.Uint64(value[2:]))),
		client: client{
			mac: MAC(value[10:16]),
			id:  string(value[fixed:id]),
		},
		hostname: cleanHostname(value[id:]),
	}
	if r.state != known && r.state != leased && r.state != declined {
		return record{}, errRecord
	}
	return r, nil
}

// store keeps leases in a file.
type store struct {
	db   *bolt.DB
	line *timeline.Line // of the file's times
}

var bucket = []byte("leases")

// openStore opens or creates the file. Only one process can have it open.
func openStore(path string) (*store, error) {
	db, err := statefile.Open(path, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			decodeRecord(k, v) // load leaves damaged records out
			return nil
		})
	})
	if errors.Is(err, statefile.ErrDamaged) {
		return nil, fmt.Errorf("opening leases file %w: move it away to begin without leases", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening leases file %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("preparing leases file %s: %w", path, err)
	}
	line, err := timeline.Open(filepath.Dir(path))
	if err != nil {
		db.Close()
		return nil, err
	}
	return &store{db, line}, nil
}

// load returns all records ordered by end, and the number of records that could not be read.
func (s *store) load() (records []record, damaged int, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(k, v []byte) error {
			r, err := decodeRecord(k, v)
			if err != nil {
				damaged++
				return nil
			}
			r.end = s.line.Time(r.end)
			records = append(records, r)
			return nil
		})
	})
	slices.SortFunc(records, func(a, b record) int { return a.end.Compare(b.end) })
	return records, damaged, err
}

// write makes changes durable in order, with one fsync for all.
func (s *store) write(changes []change) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, c := range changes {
			r := c.record
			r.end = s.line.At(r.end)
			if err := b.Put(c.addr.AsSlice(), r.encode()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store) close() error { return s.db.Close() }
