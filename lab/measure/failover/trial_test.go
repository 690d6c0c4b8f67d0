package failover

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
)

// TestLogins: a login counts for the fault when it had not succeeded before it. Logins work from the first one that
// came after the last failure.
func TestLogins(t *testing.T) {
	const fault = 2000
	came := func(turn, took float64, failed bool) client.Outcome {
		o := client.Outcome{TurnMs: turn, Ms: took}
		if failed {
			o.Error = "no"
		}
		return o
	}
	for name, c := range map[string]struct {
		outcomes []client.Outcome
		want     Logins
	}{
		"none fails": {[]client.Outcome{came(0, 10, false), came(1990, 20, false), came(2100, 30, false),
			came(2200, 10, false)}, Logins{Asked: 3, WorkMs: 130, Admitted: 4}},
		"one waits through the outage": {[]client.Outcome{came(2000, 3000, false), came(2500, 5000, true),
			came(2600, 2400, false), came(2700, 2000, false)}, Logins{Asked: 4, Failed: 1, WorkMs: 2700, Admitted: 3}},
		"it never works again": {[]client.Outcome{came(2100, 5, false), came(2200, 5000, true)},
			Logins{Asked: 2, Failed: 1, WorkMs: -1, Admitted: 1}},
		"it did not work before": {[]client.Outcome{came(0, 100, true), came(2100, 5, false)},
			Logins{Early: 1, Asked: 1, WorkMs: 105, Admitted: 1}},
	} {
		got, failures := loginsOf(c.outcomes, fault)
		if diff := cmp.Diff(c.want, got); diff != "" || len(failures) != c.want.Failed {
			t.Errorf("%s: %d failures, (-want +got):\n%s", name, len(failures), diff)
		}
	}
}

// TestAccounts: each kind of record that is missing or there twice is counted once, whatever a gateway did.
func TestAccounts(t *testing.T) {
	const on, start, interim, stop = "Accounting-On", "Start", "Interim-Update", "Stop"
	all := func(string) bool { return true }
	record := func(status, session string, octets int64) dut.Accounting {
		return dut.Accounting{Status: status, Session: session, User: "u" + session, Octets: octets}
	}
	for name, c := range map[string]struct {
		records []dut.Accounting
		logins  int
		want    Accounts
	}{
		"in order": {[]dut.Accounting{{Status: on, Session: "gw"}, record(start, "1", 0), record(interim, "1", 50),
			record(stop, "1", 100)}, 1, Accounts{Logins: 1, Sessions: 1, Interims: 1, Octets: 100}},
		"no stop, and no record of a login": {[]dut.Accounting{record(start, "1", 0), record(interim, "1", 50)}, 2,
			Accounts{Logins: 2, Sessions: 1, Interims: 1, Octets: 50, NoStart: 1, NoStop: 1}},
		"no start": {[]dut.Accounting{record(stop, "1", 7)}, 1,
			Accounts{Logins: 1, Sessions: 1, Octets: 7, NoStart: 1}},
		"twice": {[]dut.Accounting{record(start, "1", 0), record(start, "1", 0), record(stop, "1", 7),
			record(stop, "1", 7), record(stop, "1", 7)}, 1,
			Accounts{Logins: 1, Sessions: 1, Octets: 7, TwiceStarted: 1, TwiceStopped: 2}},
		"two sessions of one login": {[]dut.Accounting{record(start, "1", 0), record(stop, "1", 7), record(start, "2", 0),
			record(stop, "2", 5)}, 1, Accounts{Logins: 1, Sessions: 2, Octets: 12}},
	} {
		got := AccountsOf(c.records, c.logins, 0, all)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	others := AccountsOf([]dut.Accounting{record(stop, "1", 7)}, 0, 3, func(string) bool { return false })
	if others.Octets != 0 || others.Passed != 3 {
		t.Errorf("octets of other clients count: %+v", others)
	}
}

// TestFlows: a client's outage is that of its worse direction, and one that is not back in either must log in again.
func TestFlows(t *testing.T) {
	track := func(outage time.Duration, back bool) pulse.Track {
		return pulse.Track{OutageNs: int64(outage), SilenceNs: int64(2 * outage), Back: back}
	}
	trial := &Trial{}
	why := trial.addFlows([]pulse.Got{
		{Num: 1, Down: track(time.Second, true)},
		{Num: 2, Down: track(0, true), TCP: "reset"},
		{Num: 3, Down: track(3*time.Second, false)},
	}, pulse.Arrived{Up: map[int]pulse.Track{
		1: track(0, true), 2: track(500*time.Millisecond, true), 3: track(0, true)}})
	if diff := cmp.Diff(&Trial{OutageMs: []float64{1000, 500, 3000}, SilenceMs: []float64{2000, 1000, 6000}, Clients: 3,
		NotBack: 1, OutageP50: 1000, OutageMax: 3000, SilentMax: 6000, TCPAsked: 3, TCPLost: 1}, trial); diff != "" {
		t.Error(diff)
	}
	if len(why) != 1 || why[0] != "reset" {
		t.Errorf("lost connections: %v", why)
	}
}
