package roaming

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
)

// KindMove is the kind of the records of moves.
const KindMove = "move"

// Trial is the record of one move: clients go from one gateway to the other at once, in a lab of its own.
type Trial struct {
	result.Head
	Cell result.Cell `json:"cell"` // what was measured, by its dimensions

	SetupSeconds float64  `json:"setup_seconds"`  // of the block's lab with its device
	WatchSeconds float64  `json:"watch_seconds"`  // from the move to the last look at the packets
	Died         []string `json:"died,omitempty"` // programs of the device that ended by themselves

	Clients int `json:"clients"` // so many moved
	Again   int `json:"again"`   // of them, without a packet at the new gateway until the end: they must log in again
	// Open is how many came in at the new gateway and still got packets by the former one at the end.
	Open int `json:"open"`

	LeaseMs []float64 `json:"lease_ms"` // of each client, the time until it had an address at the new gateway, ms
	// AdmitMs is the time from its first packet with that address until one of the server's came back, of each client that
	// came in, ms.
	AdmitMs []float64 `json:"admit_ms"`
	// BlockedMs is the time from then until its last packet by the former gateway, ms; negative: that was before.
	BlockedMs  []float64 `json:"blocked_ms"`
	LeaseP50   float64   `json:"lease_p50"`             // median of `lease_ms`
	AdmitP50   *float64  `json:"admit_p50,omitempty"`   // median of `admit_ms`; absent: nobody came in
	AdmitMax   *float64  `json:"admit_max,omitempty"`   // the largest of them
	BlockedP50 *float64  `json:"blocked_p50,omitempty"` // median of `blocked_ms`
	BlockedMax *float64  `json:"blocked_max,omitempty"` // the largest of them

	Accounts *failover.Accounts `json:"accounts,omitempty"` // what the RADIUS server was told; absent: there is none

	LateMs  float64        `json:"late_ms"` // the latest packet of the lab left so long after its time
	Machine result.Machine `json:"machine"` // /proc/stat while the move was watched
}

// movedBy is what is added to a client's number in its pulses at the new gateway.
const movedBy = 1 << 16

// addMoves adds what both ends of each client have received.
func (t *Trial) addMoves(former, now []pulse.Got) {
	by := map[int]pulse.Track{}
	for _, f := range former {
		by[f.Num] = f.Down
	}
	for _, c := range now {
		old := by[c.Num-movedBy]
		if c.Down.Received == 0 {
			t.Again++
			continue
		}
		t.AdmitMs = append(t.AdmitMs, ms(c.Down.FirstNs-c.BeganNs))
		t.BlockedMs = append(t.BlockedMs, ms(old.LastNs-c.Down.FirstNs))
		if old.Back {
			t.Open++
		}
	}
	t.AdmitP50, t.AdmitMax = middleAndMost(t.AdmitMs)
	t.BlockedP50, t.BlockedMax = middleAndMost(t.BlockedMs)
}

// addLeases adds the times of leases.
func (t *Trial) addLeases(outcomes []client.Outcome) {
	for _, o := range outcomes {
		t.LeaseMs = append(t.LeaseMs, o.Ms)
	}
	if p50, _ := middleAndMost(t.LeaseMs); p50 != nil {
		t.LeaseP50 = *p50
	}
}

// middleAndMost returns the median and the largest value; nil: there is none.
func middleAndMost(values []float64) (p50, most *float64) {
	if len(values) == 0 {
		return nil, nil
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := result.Quantile(sorted, 0.5)
	return &middle, &sorted[len(sorted)-1]
}

// passed is what both gateways let pass, bytes of IP packets.
func passed(server agent.Pulses, clients ...agent.Pulses) (bytes int64) {
	for _, up := range server.Server.Up {
		bytes += pulse.PulseBytes(up.Received)
	}
	for _, host := range clients {
		for _, c := range host.Clients.Clients {
			bytes += pulse.PulseBytes(c.Down.Received)
		}
	}
	return bytes
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
