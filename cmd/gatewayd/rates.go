package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
)

// rate is what a session sends and receives, bits of IP packets a second.
type rate struct {
	UpBps   uint64 `json:"up_bps"`
	DownBps uint64 `json:"down_bps"`
}

// String returns text such as "1.2M/20M", and "-" for nil.
func (r *rate) String() string {
	if r == nil {
		return "-"
	}
	return perSecond(r.UpBps) + "/" + perSecond(r.DownBps)
}

func perSecond(bps uint64) string {
	if bps == 0 {
		return "0"
	}
	return units.Rate(bps)
}

// measureRatesFor is how long rates are measured.
const measureRatesFor = time.Second

// measureRates reads the counters of all sessions and waits for measureRatesFor. It returns a function that computes
// the rate of a session that is read afterwards; nil for one that did not exist before.
func measureRates(ctx context.Context, c *control.Client, filter control.Filter) (func(control.Session) *rate, error) {
	type reading struct {
		control.Traffic
		read time.Time
	}
	before := map[string]reading{}
	err := c.Sessions(ctx, filter, func(s control.Session) error {
		if s.ID != "" {
			before[s.ID] = reading{s.Traffic, time.Now()}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(measureRatesFor):
	}
	return func(s control.Session) *rate {
		earlier, found := before[s.ID]
		seconds := time.Since(earlier.read).Seconds()
		if !found || s.UpBytes < earlier.UpBytes || s.DownBytes < earlier.DownBytes {
			return nil
		}
		bps := func(bytes uint64) uint64 { return uint64(math.Round(float64(bytes) * 8 / seconds)) }
		return &rate{bps(s.UpBytes - earlier.UpBytes), bps(s.DownBytes - earlier.DownBytes)}
	}, nil
}

// jsonWriter returns a function that writes a client as a line of JSON. Where rateOf is not nil, the key "now" has the
// client's rate.
func jsonWriter(w io.Writer, rateOf func(control.Session) *rate) func(control.Session) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(s control.Session) error {
		line := struct {
			control.Session
			Now *rate `json:"now,omitempty"`
		}{Session: s}
		if rateOf != nil {
			line.Now = rateOf(s)
		}
		return enc.Encode(line)
	}
}
