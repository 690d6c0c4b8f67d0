package experiment

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
)

// costKeys have no meaning where logins are measured: they say how much payload
// is sent, or how a device is held against a clean router.
var costKeys = []string{
	"offered_mbps", "mbps_per_client", "directions", "profiles", "aa_blocks", "windows", "window", "warmup", "profile_window",
	"traffic.kind", "traffic.protocol", "traffic.burst_segments", "traffic.pacing",
	"traffic.short_per_second", "traffic.short_bytes",
	"beside.client", "beside.traffic", "beside.clients",
}

// settle fills in the defaults that depend on what is measured, and is harmless
// when called again.
func (e *Experiment) settle() {
	unset := func(key string) bool {
		_, set := e.origins[key]
		return !set
	}
	logins := e.Measure == result.MeasureLogins
	if unset("mode") {
		e.Mode = result.ModeDuet
		if logins {
			e.Mode = result.ModeSolo
		}
	}
	if unset("windows") {
		e.Windows = defaultWindows
		if logins {
			e.Windows = 1 // a storm is over once
		}
	}
	if e.Traffic.ShortPerSecond > 0 && e.Traffic.ShortBytes == 0 {
		e.Traffic.ShortBytes = defaultShort
	}
	if unset("login_rates") {
		e.LoginRates = nil
		if logins {
			e.LoginRates = []float64{0}
		}
	}
}

// checkLogins refuses what a storm of logins cannot have.
func (e *Experiment) checkLogins(report func(key, format string, args ...any)) {
	const only = "measure = \"" + result.MeasureLogins + "\""
	for _, key := range costKeys {
		if _, set := e.origins[key]; set {
			report(key, "has no meaning with %s: no payload is sent and no clean router stands beside the device", only)
		}
	}
	if e.Mode != result.ModeSolo {
		report("mode", "%q does not go with %s: a clean router has no log-ins to stand beside", e.Mode, only)
	}
	if !client.KindOf(e.Client.Kind).Leases {
		report("client.kind", "%q does not go with %s: these clients lease no addresses", e.Client.Kind, only)
	}
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with %s: nobody sends meanwhile", only)
	}
	if slices.Contains(e.DUTs, Clean) {
		report("duts", "%q does not go with %s: it has no log-in", Clean, only)
	}
}

// checkCost refuses what only a storm of logins can have.
func (e *Experiment) checkCost(report func(key, format string, args ...any)) {
	if _, set := e.origins["login_rates"]; set {
		report("login_rates", "needs measure = %q", result.MeasureLogins)
	}
}

// loginsFile is the resolved file of an experiment that measures logins: the
// keys that have a meaning there.
type loginsFile struct {
	Name        string               `toml:"name"`
	Description string               `toml:"description"`
	Measure     string               `toml:"measure"`
	Mode        string               `toml:"mode"`
	DUTs        []string             `toml:"duts"`
	Clients     []int                `toml:"clients"`
	LoginRates  []float64            `toml:"login_rates"`
	Blocks      int                  `toml:"blocks"`
	Redo        int                  `toml:"redo"`
	Client      Client               `toml:"client"`
	Custom      map[string]CustomDUT `toml:"dut,omitempty"`
}

func (e *Experiment) asLogins() loginsFile {
	return loginsFile{
		Name: e.Name, Description: e.Description, Measure: e.Measure, Mode: e.Mode, DUTs: e.DUTs, Clients: e.Clients,
		LoginRates: e.LoginRates, Blocks: e.Blocks, Redo: e.Redo, Client: e.Client, Custom: e.Custom,
	}
}

// RateText says at which rate clients come.
func RateText(perSecond float64) string {
	if perSecond == 0 {
		return "all at once"
	}
	return fmt.Sprintf("%g a second", perSecond)
}
