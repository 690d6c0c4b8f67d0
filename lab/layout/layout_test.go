package layout_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gateweigh/gateweigh/lab/layout"
)

func number(bytes uint32) btf.Type { return &btf.Int{Name: "number", Size: bytes} }

// object returns an object with a map "pairs" of struct { __u32 first; __u32 pad; __u64 second; }.
func object() *ebpf.CollectionSpec {
	pair := &btf.Struct{Name: "pair", Size: 16, Members: []btf.Member{
		{Name: "first", Type: number(4)}, {Name: "pad", Type: number(4), Offset: 32},
		{Name: "second", Type: number(8), Offset: 64},
	}}
	return &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"pairs": {ValueSize: 16, Value: pair}}}
}

func TestTypesThatDiffer(t *testing.T) {
	type same struct {
		First, Pad uint32
		Second     uint64
	}
	for _, tt := range []struct {
		name  string
		value any
		want  string // in the error; empty: none
	}{
		{"the same", same{}, ""},
		{"larger", struct{ A, B, C uint64 }{}, "24"},
		{"other places", struct {
			First  uint64
			Second uint64
		}{}, "first"},
		{"a field less", struct {
			First  uint32
			_      [4]byte
			Second uint64
		}{}, "pad"},
		{"a field at its end less", struct {
			First, Pad uint32
			_          [8]byte
		}{}, "3 fields"},
		{"a field more", struct {
			First, Pad uint32
			Second     uint64
			Third      struct{}
		}{}, "bytes"},
	} {
		err := layout.Check(object(), map[string]any{"pairs": tt.value})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if err := layout.Check(object(), map[string]any{"singles": uint64(0)}); err == nil ||
		!strings.Contains(err.Error(), "singles") {
		t.Errorf("a map that is not there: %v", err)
	}
	other := object()
	if other.ByteOrder = binary.ByteOrder(binary.BigEndian); binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		other.ByteOrder = binary.LittleEndian
	}
	if err := layout.Check(other, nil); err == nil || !strings.Contains(err.Error(), "order") {
		t.Errorf("another byte order: %v", err)
	}
	empty := object()
	empty.Programs = map[string]*ebpf.ProgramSpec{"idle": {}}
	if err := layout.Check(empty, nil); err == nil || !strings.Contains(err.Error(), "idle") {
		t.Errorf("a program without instructions: %v", err)
	}
}
