package pppoe

import (
	"bytes"
	"errors"
	"testing"
)

// TestFrames: frames that are written and read again are the same.
func TestFrames(t *testing.T) {
	for _, f := range []Frame{
		{To: Broadcast, From: MAC{2, 0, 0, 0, 0, 1}, Code: PADI, Tags: []Tag{{ServiceName, nil}, {HostUniq, []byte("x")}}},
		{To: MAC{2, 0, 0, 0, 0, 2}, From: MAC{2, 0, 0, 0, 0, 1}, Code: PADT, Session: 77},
		{To: MAC{2, 0, 0, 0, 0, 2}, From: MAC{2, 0, 0, 0, 0, 1}, Session: 77, PPP: []byte{0xc0, 0x21, 1, 1, 0, 4}},
	} {
		b := append(f.Append(nil), make([]byte, 46)...) // padding
		got, err := Parse(b)
		if err != nil || got.To != f.To || got.From != f.From || got.Code != f.Code ||
			got.Session != f.Session || !bytes.Equal(got.PPP, f.PPP) || len(got.Tags) != len(f.Tags) {
			t.Errorf("%+v: %+v, %v", f, got, err)
		}
		for i := range got.Tags {
			if got.Tags[i].Type != f.Tags[i].Type || !bytes.Equal(got.Tags[i].Value, f.Tags[i].Value) {
				t.Errorf("%+v: %+v", f.Tags[i], got.Tags[i])
			}
		}
	}
	long := Frame{Code: PADI, Tags: []Tag{{HostUniq, make([]byte, 1500)}}}
	if b := long.Append(nil); b != nil {
		t.Errorf("a frame of discovery with %d bytes", len(b))
	}
}

// TestBadFrames: each is refused for its reason.
func TestBadFrames(t *testing.T) {
	good := (&Frame{To: Broadcast, Code: PADI, Tags: []Tag{{ServiceName, []byte("isp")}}}).Append(nil)
	change := func(index int, v byte) []byte { b := bytes.Clone(good); b[index] = v; return b }
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"short", good[:19], ErrShort},
		{"version", change(14, 0x21), ErrVersion},
		{"length beyond the frame", change(19, 200), ErrShort},
		{"tag beyond the length", change(23, 9), ErrTags},
		{"half a tag", append(change(19, 9), 0, 0), ErrTags},
	} {
		if _, err := Parse(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// FuzzParse: a frame that is read and written is the same one.
func FuzzParse(f *testing.F) {
	f.Add((&Frame{To: Broadcast, Code: PADI,
		Tags: []Tag{{ServiceName, nil}, {HostUniq, []byte("x")}, {PPPMaxPayload, []byte{5, 220}}}}).Append(nil))
	f.Add((&Frame{Session: 7, PPP: []byte{0, 0x21, 0x45}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Parse(b)
		if err != nil || frame.PPP == nil && frame.Code == data {
			return
		}
		again := frame.Append(nil)
		if again == nil { // longer than discovery allows
			return
		}
		second, err := Parse(again)
		if err != nil || len(second.Tags) != len(frame.Tags) || !bytes.Equal(second.PPP, frame.PPP) ||
			second.Session != frame.Session {
			t.Fatalf("%+v became %+v, %v", frame, second, err)
		}
	})
}
