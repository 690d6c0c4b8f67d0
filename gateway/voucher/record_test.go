package voucher

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/allowance"
)

func FuzzRecord(f *testing.F) {
	one := record{Code: "K7HM2XPD9RTW", First: 1, Revoked: true, Used: allowance.Used{Online: 2, Bytes: 3,
		Uses: []allowance.Use{{Session: "0123456789abcdef", Network: "guests", MAC: "02:00:00:00:00:01",
			Addr: netip.MustParseAddr("10.1.0.2"), OnlineBefore: 4, BytesBefore: 5}}}}
	f.Add(one.encode())
	f.Add([]byte(`{"c":"K7HM2XPD9RTW"}{}`))
	f.Add([]byte(`{"c":"K7HM2XPD9RTW","u":[{"i":"a"},{"i":"a"}]}`))
	f.Add([]byte(`{"c":"K7HM2XPD9RTW","t":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil || !bytes.Equal(again.encode(), r.encode()) {
			t.Errorf("%s became %s, %v", data, r.encode(), err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add(encode(&batch{Name: "lobby", Count: 3, Terms: Terms{Devices: 1, ForSeconds: 60, Note: "a note"}}))
	f.Add([]byte(`{"name":"lobby-17","count":1,"created":"2026-01-01T00:00:00Z","terms":{"devices":1}}`))
	f.Add([]byte(`{"name":"x","count":1,"created":"2026-01-01T00:00:00Z","terms":{"devices":1},"more":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBatch(data)
		if err != nil {
			return
		}
		if again, err := decodeBatch(encode(b)); err != nil || !bytes.Equal(encode(again), encode(b)) {
			t.Errorf("%s became %s, %v", data, encode(b), err)
		}
		if name, n := SplitName(b.name(b.first)); name != b.Name || n != 1 {
			t.Errorf("the first voucher of %q is %q", b.Name, b.name(b.first))
		}
	})
}
