package pulse

import (
	"testing"
	"time"
)

// TestOutageIsWhatIsMissing: the outage is the longest run of missing pulses since the mark, not the longest time
// between arrivals. A run that is open at the end counts.
func TestOutageIsWhatIsMissing(t *testing.T) {
	at := func(d time.Duration) int64 { return int64(time.Hour + d) }
	var track Track
	for seq := range uint32(3) {
		track.arrived(10*seq, at(time.Duration(seq))) // before the mark, 9 are missing twice
	}
	track.mark(at(time.Second))
	track.arrived(21, at(1200*time.Millisecond)) // late, and none missing
	track.arrived(26, at(1210*time.Millisecond)) // four missing
	track.arrived(25, at(1211*time.Millisecond)) // older than the latest
	track.arrived(27, at(1220*time.Millisecond))
	got := track.ended(at(1300 * time.Millisecond))
	if got.OutageNs != int64(40*time.Millisecond) || got.SilenceNs != int64(200*time.Millisecond) || !got.Back ||
		got.Received != 7 {
		t.Errorf("%+v", got)
	}
	got = track.ended(at(4220 * time.Millisecond))
	if got.OutageNs != int64(3*time.Second) || got.SilenceNs != int64(3*time.Second) || got.Back {
		t.Errorf("3 s without pulses at the end: %+v", got)
	}
	if never := (&Track{}).ended(at(0)); never.Back {
		t.Errorf("a client of which nothing arrived is back: %+v", never)
	}
}
