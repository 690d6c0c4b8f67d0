// Tests of the table's clock. A tableTime is a time since the table was opened, which a changed wall clock does not
// move; zeroTime stands for "never".

package session

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestMoments: times become moments of the table (tableTime) and times of the file, and the same times again when
// converted back.
func TestMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{opened: time.Now(), filed: time.Unix(60, 0)} // the file's line begins in 1970
		time.Sleep(time.Minute)
		for name, tt := range map[string]struct {
			t    time.Time
			want tableTime
		}{
			"none":            {time.Time{}, zeroTime},
			"now":             {time.Now(), tableTime(time.Minute)},
			"from a file":     {time.Now().Add(-time.Hour).Round(0), tableTime(-59 * time.Minute)},
			"in time to come": {time.Now().Add(time.Hour).Round(0), tableTime(61 * time.Minute)},
			"year 9999":       {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), zeroTime},
		} {
			got := c.tableTime(tt.t)
			if got != tt.want {
				t.Errorf("%s: moment %d, want %d", name, got, tt.want)
			}
			if filed := c.inFile(got); c.ofFile(filed) != got {
				t.Errorf("%s: in the file it is %s, moment %d", name, filed, c.ofFile(filed))
			}
			if back := c.time(got); got != zeroTime && !back.Equal(tt.t) || got == zeroTime && !back.IsZero() {
				t.Errorf("%s: %s came back as %s", name, tt.t, back)
			}
		}
		if got := tableTime(5).after(math.MaxInt64); got != zeroTime {
			t.Errorf("5 and as long as can be is %d", got)
		}
	})
}

func TestStopAt(t *testing.T) {
	for _, tt := range []struct{ quota, counted, read, want uint64 }{
		{0, 7, 9, 0},                              // no quota
		{100, 0, 0, 100},                          // all of it is left
		{100, 30, 5000, 5070},                     //
		{100, 100, 5000, 5000},                    // used up: nothing more passes
		{100, 120, 5000, 5000},                    //
		{100, 100, 0, 1},                          // 0 would be no limit
		{math.MaxUint64, 0, 5000, math.MaxUint64}, // never reached, never overrun
		{math.MaxUint64, 10, 10, math.MaxUint64},  //
		{1000, 400, 0, 600},                       // counted before the counter restarted
	} {
		if got := stopAt(tt.quota, tt.counted, tt.read); got != tt.want {
			t.Errorf("stopAt(%d, %d, %d) = %d, want %d", tt.quota, tt.counted, tt.read, got, tt.want)
		}
	}
}

func TestPlainNames(t *testing.T) {
	long := string(make([]byte, 300))
	for hostname, want := range map[string]string{
		"phone": "phone", "Küche": "Küche", "a\x1b[31m\nb": "a[31mb", "\xff\xfeok": "ok", long: "", "": "",
	} {
		if got := cleanHostname(hostname); got != want {
			t.Errorf("plain(%q) = %q, want %q", hostname, got, want)
		}
	}
}
