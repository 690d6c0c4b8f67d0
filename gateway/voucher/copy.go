// What the store of the gateways tells of vouchers.

package voucher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/cluster"
)

// batchCopy is the file's copy of the batches.
type batchCopy struct{ *shared }

var _ cluster.Copy = batchCopy{}

// Records implements cluster.Copy.
func (c batchCopy) Records(visit func(key string, content []byte) error) error {
	return c.Batches(func(first ID, data []byte) error {
		one, err := decodeBatch(data)
		if err != nil {
			return err
		}
		return visit(one.Name, encode(sharedBatch{*one, first}))
	})
}

// Told implements cluster.Copy. A batch never changes.
func (c batchCopy) Told(name string, r cluster.Record) (instead []byte) {
	one, err := decodeShared(r.Content)
	if err != nil || one.Name != name {
		c.log.Error("a batch of vouchers in the store is nothing that gatewayd writes", "batch", name, "err", err)
		return nil
	}
	mine := ID(0)
	err = c.Batches(func(first ID, data []byte) error {
		if had, err := decodeBatch(data); err == nil && had.Name == name {
			mine = first
		}
		return nil
	})
	switch {
	case err != nil:
		c.log.Error("vouchers: their file cannot be read", "err", err)
	case mine != 0 && mine != one.First:
		c.mu.Lock()
		told := c.alien[name]
		c.alien[name] = true
		c.mu.Unlock()
		if !told {
			c.log.Error("vouchers of this gateway admit nobody", "batch", name, "err", ErrAlien)
		}
	case c.version(batchKey(name)) < r.Version:
		c.tell(batchKey(name), r)
	}
	return nil
}

// Synced implements cluster.Copy.
func (c batchCopy) Synced(up bool) { c.setEqual(0, up) }

// voucherCopy is the file's copy of the vouchers.
type voucherCopy struct{ *shared }

var _ cluster.Copy = voucherCopy{}

// Records implements cluster.Copy.
func (c voucherCopy) Records(visit func(key string, content []byte) error) error {
	hidden, err := c.aliens()
	if err != nil {
		return err
	}
	return c.Vouchers(0, func(id ID, record []byte) (bool, error) {
		if slices.ContainsFunc(hidden, func(o *batch) bool { return o.first <= id && id < o.first+ID(o.Count) }) {
			return true, nil
		}
		return true, visit(strconv.FormatUint(uint64(id), 10), record)
	})
}

// aliens are the batches of this gateway that cannot come into the store.
func (s *shared) aliens() (all []*batch, err error) {
	s.mu.Lock()
	names := maps.Clone(s.alien)
	s.mu.Unlock()
	return all, s.Batches(func(first ID, data []byte) error {
		one, err := decodeBatch(data)
		if err == nil && names[one.Name] {
			one.first = first
			all = append(all, one)
		}
		return err
	})
}

// Told implements cluster.Copy.
func (c voucherCopy) Told(key string, r cluster.Record) (instead []byte) {
	number, err := strconv.ParseUint(key, 10, 64)
	if err == nil {
		_, err = decodeRecord(r.Content)
	}
	if err != nil || number < sharedFrom {
		c.log.Error("a voucher in the store is nothing that gatewayd writes", "voucher", key, "err", err)
		return nil
	}
	same := false
	err = c.db.View(func(tx *bbolt.Tx) error {
		version, mine := versionIn(tx, voucherKey(ID(number))), tx.Bucket(vouchersBucket).Get(keyOf(ID(number)))
		if version > r.Version {
			instead = bytes.Clone(mine)
		}
		same = version == r.Version && bytes.Equal(mine, r.Content)
		return nil
	})
	if err == nil && instead == nil && !same {
		c.tell(voucherKey(ID(number)), r)
	}
	return instead
}

// Synced implements cluster.Copy.
func (c voucherCopy) Synced(up bool) {
	if up { // what was told is known before a code can be called wrong
		if err := c.adopt(); err != nil {
			c.log.Error("vouchers: what other gateways have changed is not on the disk", "err", err)
		}
	}
	c.setEqual(1, up)
}

// tell has adoptAll bring a record into the file.
func (s *shared) tell(key string, r cluster.Record) {
	s.mu.Lock()
	if waits, known := s.told[key]; !known || waits.Version <= r.Version {
		s.told[key] = r
	}
	s.mu.Unlock()
	signal(s.wake)
}

// adoptAll brings what was told into the file, until the store is closed.
func (s *shared) adoptAll() {
	defer close(s.ended)
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		if err := s.adopt(); err != nil {
			s.log.Error("vouchers: what other gateways have changed is not on the disk", "err", err)
		}
	}
}

// adopt brings what was told into the file, and tells the book of it.
func (s *shared) adopt() error {
	s.adopting.Lock()
	defer s.adopting.Unlock()
	s.mu.Lock()
	told := s.told
	s.told = map[string]cluster.Record{}
	s.mu.Unlock()
	if len(told) == 0 {
		return nil
	}
	var news adopted
	err := s.db.Update(func(tx *bbolt.Tx) error {
		news = adopted{mine: map[ID]bool{}}
		for _, key := range slices.Sorted(maps.Keys(told)) {
			if r := told[key]; versionIn(tx, key) <= r.Version {
				if err := s.adoptOne(tx, key, r, &news); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		for key, r := range told {
			if _, newer := s.told[key]; !newer {
				s.told[key] = r
			}
		}
		s.mu.Unlock()
		return fmt.Errorf("write the vouchers: %w", err)
	}
	if s.adopted != nil {
		s.adopted(news)
	}
	return nil
}

// adopted is what came from the store into the file.
type adopted struct {
	vouchers []ID
	mine     map[ID]bool // those of them that have sessions of this gateway
	batches  []*batch
}

// adoptOne brings a record into the file, by its key of versions.
func (s *shared) adoptOne(tx *bbolt.Tx, key string, r cluster.Record, news *adopted) error {
	err := tx.Bucket(versionsBucket).Put([]byte(key), binary.BigEndian.AppendUint64(nil, r.Version))
	if err != nil {
		return err
	}
	if key[0] == 'b' {
		one, err := decodeShared(r.Content)
		if err != nil {
			return err
		}
		news.batches = append(news.batches, &one.batch)
		return tx.Bucket(batchesBucket).Put(keyOf(one.First), encode(one.batch))
	}
	id := ID(binary.BigEndian.Uint64([]byte(key[1:])))
	news.vouchers = append(news.vouchers, id)
	news.mine[id], err = s.put(tx, id, r.Content)
	return err
}

// put writes a voucher of the store to the file, and reports whether it has sessions of this gateway.
func (s *shared) put(tx *bbolt.Tx, id ID, content []byte) (mine bool, err error) {
	r, err := decodeRecord(content)
	if err != nil {
		return false, err
	}
	vouchers, codes := tx.Bucket(vouchersBucket), tx.Bucket(codesBucket)
	if other := codes.Get([]byte(r.Code)); other != nil && !bytes.Equal(other, keyOf(id)) {
		s.log.Error("two vouchers have one code: the one of this gateway admits, and not the other", "voucher", id)
		return false, nil
	}
	if was := vouchers.Get(keyOf(id)); was != nil {
		if before, err := decodeRecord(was); err == nil && before.Code != r.Code {
			if err := codes.Delete([]byte(before.Code)); err != nil {
				return false, err
			}
		}
	}
	mine = slices.ContainsFunc(r.Uses, func(u allowance.Use) bool { return u.Gateway == s.gateway })
	return mine, errors.Join(codes.Put([]byte(r.Code), keyOf(id)), vouchers.Put(keyOf(id), content))
}
