package gateway

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
)

// TestFramesWait: frames of many clients that come at once are read in order, those beyond the bound are dropped, and
// Close ends Read.
func TestFramesWait(t *testing.T) {
	f, frame := newFrames(), make([]byte, 100)
	const room = bytesWaiting / 100
	for n := range uint32(room + 10) {
		binary.BigEndian.PutUint32(frame, n)
		f.put(frame)
	}
	for n := range uint32(room) {
		if got, err := f.Read(frame); err != nil || got != len(frame) || binary.BigEndian.Uint32(frame) != n {
			t.Fatalf("frame %d is %d, %d bytes, %v", n, binary.BigEndian.Uint32(frame), got, err)
		}
	}
	f.put([]byte{1, 2, 3})
	if got, err := f.Read(frame); got != 3 || err != nil {
		t.Errorf("after a storm %d bytes are read, %v", got, err)
	}
	ended := make(chan error)
	go func() { _, err := f.Read(frame); ended <- err }()
	f.Close()
	f.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
