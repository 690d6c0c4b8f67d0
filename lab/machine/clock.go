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

// Clock is what a machine's clock is at one moment, by what keeps it right.
type Clock struct {
	// OffsetNs is the time of day less CLOCK_MONOTONIC, by which frames are stamped; ns.
	OffsetNs int64 `json:"offset_ns"`
	// Bound is by how much the time of day may differ from that of the reference.
	Bound          time.Duration `json:"bound_ns"`
	Reference      string        `json:"reference"` // "10.0.0.1", as chronyc names it
	Stratum        int           `json:"stratum"`
	Unsynchronised bool          `json:"own"` // the reference is this machine itself
}

// ReadClock asks chronyd.
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

// Fields of chronyc's tracking report, chronyc(1), with -c.
const (
	trackingID         = 0 // of the reference, hexadecimal
	trackingReference  = 1
	trackingStratum    = 2
	trackingSystem     = 4 // s, of the system's clock to the reference's
	trackingDelay      = 10
	trackingDispersion = 11
	trackingLeap       = 13
	trackingFields     = 14
)

// localID is the reference of a clock that follows no other (RFC 5905, 127.127.1.1).
const localID = "7F7F0101"

// parseTracking reads what "chronyc -n -c tracking" prints. The bound is chronyc(1)'s: clock_error <= |local_offset| +
// root_dispersion + (0.5 * root_delay).
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

// dayOffset is the time of day less CLOCK_MONOTONIC, ns, by the closest of some readings.
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
