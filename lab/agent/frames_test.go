// Tests of frames whose sizes and gaps come from a capture (a Trace).

package agent

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// TestCapturedGapsAtALoad: the gaps of a capture keep their proportions at any load, and the receiver has room for
// all frames.
func TestCapturedGapsAtALoad(t *testing.T) {
	var tr frames.Trace
	for _, f := range []struct {
		bytes int
		at    time.Duration
	}{{60, 0}, {1514, time.Millisecond}, {60, 3 * time.Millisecond}} { // a pass of 4.5 ms
		if err := tr.Add(f.bytes, time.Unix(0, int64(f.at))); err != nil {
			t.Fatal(err)
		}
	}
	load := Traffic{
		Kind: traffic.KindFrames, Direction: result.Up,
		Frames: &Frames{Sizes: frames.Source{Name: "x.pcap", Trace: tr.Encode()}, Gaps: traffic.GapsCaptured,
			Length: time.Second, Burst: 44, Streams: make([]send.Stream, 2), Expected: 2},
	}
	load.OfferedMbps = 1000 * 1634 * 8 / 3 / 1e6 // 1,000 frames a second: each pass takes 3 ms
	plan, err := load.plan()
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]frames.Frame, 2000)
	n := plan.Fill(batch)
	if n < 999 || n > 1001 {
		t.Errorf("%d frames in a second of 1000 a second", n)
	}
	for i, due := range []int64{0, 666_666, 2_000_000, 3_000_000, 3_666_666} {
		if d := batch[i].Due - due; d < -2 || d > 2 {
			t.Errorf("frame %d is due after %d ns, want %d", i, batch[i].Due, due)
		}
	}
	if most, err := load.mostFrames(); err != nil || 2*most < int64(n) {
		t.Errorf("room for %d frames of each stream, %v: %d are sent in all", most, err, n)
	}
	load.Frames.Sizes = frames.Source{Name: "imix"}
	if _, err := load.plan(); err == nil {
		t.Error("gaps of a mix are no error")
	}
}

// TestSourcesThatWereDamaged: text that cannot be decoded is an error.
func TestSourcesThatWereDamaged(t *testing.T) {
	var tr frames.Trace
	for range 3 {
		if err := tr.Add(60, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	whole := tr.Encode()
	for _, b := range [][]byte{
		{}, whole[:1], whole[:2], append([]byte{9}, whole[1:]...), append(whole[:len(whole):len(whole)], 59, 0)} {
		if _, _, err := (frames.Source{Name: "x", Trace: b}).Open(); err == nil {
			t.Errorf("%v is no error", b)
		}
	}
	if sizes, got, err := (frames.Source{Name: "x", Trace: whole}).Open(); err != nil || got.Frames() != 3 ||
		sizes.Period() != 3 {
		t.Errorf("the whole one: %v, %v", got, err)
	}
}
