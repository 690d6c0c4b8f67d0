package failover

import (
	"context"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
)

// Accounts compares what the RADIUS server was told of sessions with what clients did.
type Accounts struct {
	Logins       int `json:"logins"`        // clients that were admitted
	Sessions     int `json:"sessions"`      // sessions that the server heard of
	NoStart      int `json:"no_start"`      // logins, or sessions, without a Start
	NoStop       int `json:"no_stop"`       // sessions without a Stop after all clients have logged out or are gone
	TwiceStarted int `json:"twice_started"` // Starts beyond the first of their session
	TwiceStopped int `json:"twice_stopped"` // Stops beyond the first of their session
	Interims     int `json:"interims"`      // Interim-Updates
	// Octets is what the sessions of clients admitted before the fault had by their last records, bytes.
	Octets int64 `json:"octets"`
	Passed int64 `json:"passed"` // what these clients' packets through the gateway had, bytes of IP packets
}

// Lost is how many records the server was not told.
func (a Accounts) Lost() int { return a.NoStart + a.NoStop }

// AccountsOf compares records with logins. sending reports whether a user is one of those whose packets passed counts.
func AccountsOf(records []dut.Accounting, logins int, passed int64, sending func(user string) bool) Accounts {
	type session struct{ starts, stops, octets int64 }
	sessions := map[string]*session{}
	a := Accounts{Logins: logins, Passed: passed}
	users := map[string]string{}
	for _, r := range records {
		if r.Session == "" || r.User == "" { // of the gateway itself: Accounting-On, -Off
			continue
		}
		s := sessions[r.Session]
		if s == nil {
			s = &session{}
			sessions[r.Session] = s
		}
		users[r.Session] = r.User
		s.octets = max(s.octets, r.Octets)
		switch r.Status {
		case "Start":
			s.starts++
		case "Stop":
			s.stops++
		default:
			a.Interims++
		}
	}
	a.Sessions = len(sessions)
	started := 0
	for id, s := range sessions {
		started += int(min(s.starts, 1))
		a.NoStop += int(max(0, 1-s.stops))
		a.TwiceStarted += int(max(0, s.starts-1))
		a.TwiceStopped += int(max(0, s.stops-1))
		if sending(users[id]) {
			a.Octets += s.octets
		}
	}
	// A gateway that forgot its sessions has several of one login.
	a.NoStart = max(0, logins-started, a.Sessions-started)
	return a
}

// toldWithin is how long the RADIUS server may wait for the last records after all clients have logged out. Devices
// send a record again after some seconds.
const toldWithin = 20 * time.Second

// LogOut has all clients of a host log out. Those who are not admitted any more cannot: what is missing then shows in
// the records.
func LogOut(ctx context.Context, h bench.ClientHost, adm client.Admission) {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	_ = h.Logout(ctx, adm)
}

// AwaitAccounts returns what of makes of the server's records, once nothing is lost, or after toldWithin. It returns
// nil for a device without a server.
func AwaitAccounts(ctx context.Context, told dut.Accounted, of func([]dut.Accounting) Accounts) (*Accounts, error) {
	for deadline := time.Now().Add(toldWithin); ; {
		records, err := told.Accounts(ctx)
		if err != nil || records == nil {
			return nil, err
		}
		if a := of(records); a.Lost() == 0 || time.Now().After(deadline) {
			return &a, nil
		}
		if err := bench.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// accountedPct is the share of the bytes that passed of which the server was told, %.
func accountedPct(r analysis.MetricInput) float64 {
	return 100 * analysis.Over(known(r, "accounts.octets"), known(r, "accounts.passed"))
}
