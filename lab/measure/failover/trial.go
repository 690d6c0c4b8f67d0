package failover

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
)

// KindFault is the kind of the records of faults.
const KindFault = "fault"

// Trial is the record of one fault, in a lab of its own.
type Trial struct {
	result.Head
	Cell result.Cell `json:"cell"` // what was measured, by its dimensions

	SetupSeconds float64 `json:"setup_seconds"` // of the block's lab with its device
	WatchSeconds float64 `json:"watch_seconds"` // from the fault to the last look at the packets
	// CauseSeconds is the time until what was done at the gateway was done: a daemon had ended and was started again.
	CauseSeconds float64  `json:"cause_seconds"`
	CauseError   string   `json:"cause_error,omitempty"` // why it could not be done
	Died         []string `json:"died,omitempty"`        // programs of the device that ended by themselves

	// OutageMs is the longest time without packets of each client that was admitted before the fault, in the worse
	// direction, ms.
	OutageMs  []float64 `json:"outage_ms"`
	SilenceMs []float64 `json:"silence_ms"` // the longest time between two arrivals: late packets are in it, too
	Clients   int       `json:"clients"`    // so many they were
	NotBack   int       `json:"not_back"`   // of them, without packets until the end: they must log in again
	OutageP50 float64   `json:"outage_p50"` // median of `outage_ms`
	OutageMax float64   `json:"outage_max"` // the largest of them
	SilentMax float64   `json:"silent_max"` // the largest of `silence_ms`

	TCPAsked int             `json:"tcp_asked"`         // connections that stood before the fault, one a client
	TCPLost  int             `json:"tcp_lost"`          // of them, reset, ended, or without answers at the end
	TCPWhy   []result.Reason `json:"tcp_why,omitempty"` // how they were lost

	Logins   Logins    `json:"logins"`             // of people who came in meanwhile
	Accounts *Accounts `json:"accounts,omitempty"` // what the RADIUS server was told; absent: the device has none

	LateMs  float64        `json:"late_ms"` // the latest packet of the lab left so long after its time
	Machine result.Machine `json:"machine"` // /proc/stat while the fault was watched
}

// Logins are those of newcomers after the fault.
type Logins struct {
	Asked  int `json:"asked"`  // came after the fault, or were not in when it came
	Failed int `json:"failed"` // of them, not admitted within the time limit
	// WorkMs is the time from the fault until somebody who came after it was in, and nobody failed who came later, ms.
	// Negative: that was not seen.
	WorkMs   float64         `json:"work_ms"`
	Early    int             `json:"early"`              // failed before the fault
	Admitted int             `json:"admitted"`           // all newcomers that got in, also before the fault
	Failures []result.Reason `json:"failures,omitempty"` // why logins failed
}

// loginsOf sums up the newcomers. fault is when the fault came, ms from the beginning of the arrivals.
func loginsOf(outcomes []client.Outcome, fault float64) (l Logins, failures []string) {
	slices.SortFunc(outcomes, func(a, b client.Outcome) int { return int(a.TurnMs - b.TurnMs) })
	l.WorkMs = -1
	for _, o := range outcomes {
		end := o.TurnMs + o.Ms
		if o.Succeeded() {
			l.Admitted++
		}
		switch {
		case end < fault && !o.Succeeded():
			l.Early++
		case end < fault:
		case !o.Succeeded():
			l.Asked, l.Failed, l.WorkMs = l.Asked+1, l.Failed+1, -1
			failures = append(failures, o.Error)
		default:
			l.Asked++
			if after := end - fault; o.TurnMs >= fault && (l.WorkMs < 0 || after < l.WorkMs) {
				l.WorkMs = after
			}
		}
	}
	return l, failures
}

// addFlows adds what both ends have received of the admitted clients' packets and connections. It returns why
// connections are lost.
func (t *Trial) addFlows(clients []pulse.Got, server pulse.Arrived) (why []string) {
	for _, c := range clients {
		up, down := server.Up[c.Num], c.Down
		t.OutageMs = append(t.OutageMs, ms(max(up.OutageNs, down.OutageNs)))
		t.SilenceMs = append(t.SilenceMs, ms(max(up.SilenceNs, down.SilenceNs)))
		if !up.Back || !down.Back {
			t.NotBack++
		}
		t.TCPAsked++
		if c.TCP != "" {
			t.TCPLost++
			why = append(why, c.TCP)
		}
	}
	t.Clients = len(clients)
	if len(clients) > 0 {
		sorted := slices.Sorted(slices.Values(t.OutageMs))
		t.OutageP50, t.OutageMax = result.Quantile(sorted, 0.5), sorted[len(sorted)-1]
		t.SilentMax = slices.Max(t.SilenceMs)
	}
	return why
}

// passed is what the gateway let pass of the admitted clients, bytes of IP packets.
func passed(clients agent.Pulses, server agent.Pulses) (bytes int64) {
	for _, c := range clients.Clients.Clients {
		bytes += pulse.PulseBytes(c.Down.Received+server.Server.Up[c.Num].Received) + server.Server.TCPBytes[c.Num]
	}
	return bytes
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
