package machine

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells how exact a machine's clock is, as chronyd, which keeps it right, estimates it.
type Clock struct {
	// OffsetNs is the time of day minus CLOCK_MONOTONIC, ns. Frames carry stamps of CLOCK_MONOTONIC.
	OffsetNs int64 `json:"offset_ns"`
	// Bound is the largest difference between the time of day and that of the reference.
	Bound          time.Duration `json:"bound_ns"`
	Reference      string        `json:"reference"` // the clock that this one follows, as chronyc names it: "10.0.0.1"
	Stratum        int           `json:"stratum"`   // steps from an exact clock (RFC 5905)
	Unsynchronised bool          `json:"own"`       // the reference is this machine itself
}

// ReadClock reads the clock's state from chronyd. It is an error if chronyd does not run or follows no clock yet.
func ReadClock(ctx context.Context) (Clock, error) {
	const within = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := exec.CommandContext(ctx, "chronyc", "-n", "-c", "tracking").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return Clock{}, errors.New("chronyc is not on PATH: sudo apt-get install chrony")
	}
	if err != nil {
		return Clock{}, fmt.Errorf("chronyc tracking: %s: start chronyd: systemctl start chrony", firstLine(string(out)))
	}
	c, err := parseTracking(string(out))
	if err == nil {
		c.OffsetNs, err = dayOffset()
	}
	return c, err
}

// Columns of chronyc's tracking report with -c, see chronyc(1).
const (
	trackingID         = 0 // of the reference, hexadecimal
	trackingReference  = 1
	trackingStratum    = 2
	trackingSystem     = 4  // difference of the system's clock to the reference, s
	trackingDelay      = 10 // s
	trackingDispersion = 11 // s
	trackingLeap       = 13
	trackingFields     = 14 // number of columns
)

// localID is the reference's id of a clock that follows no other (RFC 5905, 127.127.1.1).
const localID = "7F7F0101"

// parseTracking reads the output of "chronyc -n -c tracking". It computes the bound as chronyc(1) does: clock_error <=
// |local_offset| + root_dispersion + (0.5 * root_delay).
func parseTracking(text string) (c Clock, err error) {
	row, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil || len(row) < trackingFields {
		return c, fmt.Errorf("chronyc tracking says %q, which is not understood", firstLine(text))
	}
	number := func(field int) float64 {
		v, bad := strconv.ParseFloat(row[field], 64)
		if bad != nil {
			err = fmt.Errorf("chronyc tracking says %q, which is not understood", row[field])
		}
		return v
	}
	seconds := math.Abs(number(trackingSystem)) + number(trackingDispersion) + number(trackingDelay)/2
	c = Clock{Bound: time.Duration(math.Ceil(seconds * 1e9)), Reference: row[trackingReference],
		Stratum: int(number(trackingStratum)), Unsynchronised: row[trackingID] == localID}
	if c.Reference == "" {
		c.Reference = row[trackingID]
	}
	if leap := row[trackingLeap]; err == nil && (leap == "Not synchronised" || c.Stratum == 0) {
		err = errors.New("chronyd follows no clock yet: see chronyc sources, and wait until tracking says Normal")
	}
	return c, err
}

// dayOffset is the time of day minus CLOCK_MONOTONIC, ns. Between the two readings time passes, so it reads several
// times and takes the pair that took the least time.
func dayOffset() (offset int64, err error) {
	const readings = 20
	closest := int64(math.MaxInt64)
	for range readings {
		var before, day, after unix.Timespec
		err = errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &before), unix.ClockGettime(unix.CLOCK_REALTIME, &day),
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after))
		if err != nil {
			return 0, err
		}
		if took := after.Nano() - before.Nano(); took < closest {
			closest, offset = took, day.Nano()-before.Nano()-took/2
		}
	}
	return offset, nil
}
