// Records of vouchers and batches in a store: JSON, so that other stores and tools can read them.

package voucher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// batch is the record of a batch.
type batch struct {
	Name    string    `json:"name"`
	Count   int       `json:"count"`
	Created time.Time `json:"created"` // by the wall clock
	Terms   Terms     `json:"terms"`

	first ID // the key
}

// record is the record of a voucher.
type record struct {
	Code    Code   `json:"c"`
	First   int64  `json:"f,omitempty"` // first use: nanoseconds since 1970 of the state folder's time line; 0: never
	Online  int64  `json:"t,omitempty"` // nanoseconds of sessions that have ended
	Bytes   uint64 `json:"b,omitempty"` // of sessions that have ended
	Revoked bool   `json:"r,omitempty"`
	Uses    []use  `json:"u,omitempty"` // open sessions, the oldest first
}

// use is an open session of a voucher.
type use struct {
	Session string     `json:"i"`           // its ID
	Network string     `json:"n,omitempty"` // where it is; empty: there is one network
	MAC     string     `json:"m"`
	Addr    netip.Addr `json:"a"`
}

// Most sessions that a record can have: those of all devices, and as many that end.
const maxUses = 2 * MaxDevices

func (r *record) encode() []byte { return encode(r) }

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // no field's type can fail
	}
	return data
}

// decodeRecord reads a voucher's record.
func decodeRecord(data []byte) (*record, error) {
	r := &record{}
	if err := decode(data, r); err != nil {
		return nil, err
	}
	if parsed, err := ParseCode(string(r.Code)); err != nil || parsed != r.Code {
		return nil, errors.New("it has no code")
	}
	if r.First < 0 || r.Online < 0 || len(r.Uses) > maxUses {
		return nil, errors.New("a number of it is none that gatewayd writes")
	}
	for i, u := range r.Uses {
		if u.Session == "" || slices.ContainsFunc(r.Uses[:i], func(o use) bool { return o.Session == u.Session }) {
			return nil, errors.New("a session of it has no ID of its own")
		}
	}
	return r, nil
}

// decodeBatch reads a batch's record.
func decodeBatch(data []byte) (*batch, error) {
	b := &batch{}
	if err := decode(data, b); err != nil {
		return nil, err
	}
	if b.Count < 1 || b.Count > MaxCount {
		return nil, fmt.Errorf("it has %d vouchers", b.Count)
	}
	return b, errors.Join(CheckBatch(b.Name), b.Terms.Check())
}

// decode reads exactly one JSON value with known fields.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one value")
	}
	return nil
}
