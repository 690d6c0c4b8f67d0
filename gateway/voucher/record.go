// Records of vouchers and batches in a store: JSON, so that other stores and tools can read them.

package voucher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
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
	Code    Code  `json:"c"`
	First   int64 `json:"f,omitempty"` // first use: nanoseconds since 1970 of the state folder's time line; 0: never
	Revoked bool  `json:"r,omitempty"`
	// Fence is a session whose begin may reach the store late: now that the record is another one, it comes too late.
	Fence string `json:"x,omitempty"`
	allowance.Used
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
	if r.First < 0 {
		return nil, errors.New("a number of it is none that gatewayd writes")
	}
	return r, r.Check(maxUses)
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
