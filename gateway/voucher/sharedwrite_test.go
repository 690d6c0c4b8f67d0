// Tests of changes that come late to the store or to a gateway's file.

package voucher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestStaleWrite: a change of a voucher as it was before another gateway changed it is refused, also where the file has
// what that gateway wrote already.
func TestStaleWrite(t *testing.T) {
	_, one, two := twoBooks(t)
	made, err := one.Create("lobby", 1, Terms{Devices: 1, ForSeconds: 3600})
	netnstest.Must(t, err)
	agreeOn("both have the batch", "lobby-1 ", one, two)
	id, err := one.Book.store.Find(made[0].Code)
	netnstest.Must(t, err)
	was := one.recordOf(id)
	netnstest.Must(t, two.logIn(made[0].Code, 2))
	agreeOn("both know who is in", "in-use 1 sessions", one, two)
	r, err := decodeRecord(was)
	netnstest.Must(t, err)
	r.Revoked = true
	err = one.Book.store.Write(Change{Vouchers: []Record{{ID: id, Was: was, Is: r.encode()}}})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("a stale write: %v", err)
	}
	agreeOn("it is as it was", "in-use 1 sessions", one, two)

	// The answer of the store comes after the feed has told of a later change, or of a part of this one.
	was = one.recordOf(id)
	netnstest.Must(t, one.common.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(versionsBucket).Put([]byte(voucherKey(id)), binary.BigEndian.AppendUint64(nil, 1<<40))
	}))
	code := Code("3PT54P69M5D2")
	late := []Record{{ID: id, Was: was, Is: r.encode(), version: 1 << 39},
		{ID: id + 1, Is: (&record{Code: code}).encode(), Code: code, version: 1 << 39}}
	netnstest.Must(t, one.common.file.Write(Change{Vouchers: late}))
	if there, err := one.Book.store.Find(code); !bytes.Equal(one.recordOf(id), was) || err != nil || there != id+1 {
		t.Errorf("the file has %s, and of the other %d, %v", one.recordOf(id), there, err)
	}
}

// recordOf returns a voucher's record in the file.
func (m *member) recordOf(id ID) (record []byte) {
	m.t.Helper()
	netnstest.Must(m.t, m.Book.store.Vouchers(id, func(_ ID, data []byte) (bool, error) {
		record = bytes.Clone(data)
		return false, nil
	}))
	return record
}
