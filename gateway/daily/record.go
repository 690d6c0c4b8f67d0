package daily

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/gateweigh/gateweigh/gateway/allowance"
)

// record is what a holder has used on a day, in a store: JSON, so that other tools can read it.
type record struct {
	Day   int64 `json:"d"`           // when the day began by the wall clock, seconds since 1970
	Since int64 `json:"s,omitempty"` // when that was first seen, nanoseconds since 1970 of the state folder's time line
	allowance.Used
}

// maxUses bounds the sessions of a record.
const maxUses = 10_000

func (r *record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // no field's type can fail
	}
	return data
}

// decode reads exactly one record with known fields.
func decode(data []byte) (*record, error) {
	r := &record{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("there is more than one value")
	}
	return r, r.Check(maxUses)
}
