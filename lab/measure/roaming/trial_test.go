package roaming

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
)

// TestMoves: a client that came in was blocked at the former gateway before or after that, or not at all. One without
// a packet at the new gateway must log in again, and is not counted otherwise.
func TestMoves(t *testing.T) {
	at := func(ms int) int64 { return int64(time.Hour) + int64(ms)*int64(time.Millisecond) }
	former := func(num, last int, back bool) pulse.Got {
		return pulse.Got{Num: num, Down: pulse.Track{Received: 9, LastNs: at(last), Back: back}}
	}
	came := func(num, began, first int) pulse.Got {
		return pulse.Got{Num: num + movedBy, BeganNs: at(began), Down: pulse.Track{Received: 1, FirstNs: at(first)}}
	}
	trial := &Trial{Clients: 4}
	trial.addMoves(
		[]pulse.Got{former(1, 90, false), former(2, 250, false), former(3, 5000, true), former(4, 5000, true)},
		[]pulse.Got{came(1, 80, 100), came(2, 80, 220), came(3, 80, 140), {Num: 4 + movedBy, BeganNs: at(80)}})
	number := func(v float64) *float64 { return &v }
	if diff := cmp.Diff(&Trial{Clients: 4, Again: 1, Open: 1, AdmitMs: []float64{20, 140, 60},
		BlockedMs: []float64{-10, 30, 4860}, AdmitP50: number(60), AdmitMax: number(140), BlockedP50: number(30),
		BlockedMax: number(4860)}, trial); diff != "" {
		t.Error(diff)
	}
	none := &Trial{Clients: 1}
	none.addMoves([]pulse.Got{former(1, 90, true)}, []pulse.Got{{Num: 1 + movedBy, BeganNs: at(80)}})
	if none.Again != 1 || none.Open != 0 || none.AdmitP50 != nil || none.BlockedMax != nil {
		t.Errorf("nobody came in: %+v", none)
	}
}

// TestPassed: what passed is counted at the end that it reached, at both gateways.
func TestPassed(t *testing.T) {
	down := func(n int64) agent.Pulses {
		return agent.Pulses{Clients: pulse.Result{Clients: []pulse.Got{{Down: pulse.Track{Received: n}}}}}
	}
	server := agent.Pulses{Server: pulse.Arrived{Up: map[int]pulse.Track{1: {Received: 1}, 1 + movedBy: {Received: 2}}}}
	if got, want := passed(server, down(3), down(4)), pulse.PulseBytes(10); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
