package logins

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of a phase's metrics, over all clients. Metrics of leasing have the prefix Lease, those of logging in Login.
const (
	Lease = "lease_"
	Login = "login_"

	PerSecond        = "per_second" // clients that got through, over the time until the last of them had
	P50Ms            = "p50_ms"
	P90Ms            = "p90_ms"
	P99Ms            = "p99_ms"
	MaxMs            = "max_ms"
	LateMs           = "late_ms"
	RouterMs         = "router_ms"
	ProcessMs        = "process_ms"
	ClientMs         = "client_ms"
	RadiusMs         = "radius_ms"
	RouterBusyPct    = "router_busy_pct"
	EndpointsBusyPct = "endpoints_busy_pct"
	ClientBusyPct    = "client_busy_pct"
	RadiusBusyPct    = "radius_busy_pct"
)

// Names of metrics of the device's memory.
const (
	IdlePSSMiB      = "idle_pss_mib"
	LoggedPSSMiB    = "logged_pss_mib"
	PSSKiBPerClient = "pss_kib_per_client"
)

// StormPerSecond is the metric of a whole storm.
const StormPerSecond = "storm_per_second"

// input has a storm's figures by their names in records.
type input = analysis.MetricInput

// phaseMetrics are the metrics of a phase, without the phase's prefix.
var phaseMetrics = []analysis.Metric{
	{Name: PerSecond, Unit: "clients/s", Text: "that got through", Better: analysis.More, Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Over(r.Get("through"), r.Get("through_seconds")) }},
	{Name: P50Ms, Unit: "ms", Text: "from a client's turn, of those that got through", Better: analysis.Less,
		Range: analysis.Amounts, Value: analysis.Field("through.p50")},
	{Name: P90Ms, Unit: "ms", Better: analysis.Less, Range: analysis.Amounts, Value: analysis.Field("through.p90")},
	{Name: P99Ms, Short: "p99", Unit: "ms", Better: analysis.Less, Range: analysis.Amounts,
		Value: analysis.Field("through.p99")},
	{Name: MaxMs, Unit: "ms", Better: analysis.Less, Range: analysis.Amounts, Value: analysis.Field("through.max")},
	{Name: LateMs, Unit: "ms", Text: "how long after its turn the latest client began", Host: "client",
		Range: analysis.Amounts, Value: analysis.Field("late_ms")},
	{Name: RouterMs, Short: "CPU", Unit: "ms", Text: "router CPU a client that got through", Better: analysis.Less,
		Host: "router", Range: analysis.Amounts, Value: func(r input) float64 {
			return msPerClient(r, r.Get("napi_ns")+r.Get("process_ns"))
		}},
	{Name: ProcessMs, Unit: "ms", Text: "of it in the device's processes", Host: "router", Range: analysis.Amounts,
		Value: func(r input) float64 { return msPerClient(r, r.Get("process_ns")) }},
	{Name: ClientMs, Unit: "ms", Text: "CPU of the client hosts a client", Host: "client", Range: analysis.Amounts,
		Value: func(r input) float64 { return msPerClient(r, roleNs(r, result.RoleClient)) }},
	{Name: RadiusMs, Unit: "ms", Text: "CPU of the RADIUS server a client", Host: "server", Range: analysis.Amounts,
		Value: func(r input) float64 { return msPerClient(r, roleNs(r, result.RoleRadius)) }},
	{Name: RouterBusyPct, Unit: "%", Text: "of its CPUs", Host: "router", Range: analysis.Percents,
		Value: busyPct("router_busy")},
	analysis.SlowedMetric("router", result.RouterShare),
	{Name: EndpointsBusyPct, Unit: "%", Text: "of the endpoints' CPUs", Host: "client", Range: analysis.Percents,
		Value: busyPct("endpoints_busy")},
	{Name: ClientBusyPct, Unit: "%", Text: "of the endpoints' CPUs, by client hosts", Host: "client",
		Range: analysis.Percents, Value: busyPct("client_busy")},
	{Name: RadiusBusyPct, Unit: "%", Text: "of the endpoints' CPUs, by the RADIUS server", Host: "server",
		Range: analysis.Percents, Value: busyPct("radius_busy")},
}

// Metrics are all metrics of a cell.
var Metrics = append(append(phaseFigures(Login), phaseFigures(Lease)...),
	analysis.Metric{Name: StormPerSecond, Unit: "clients/s",
		Text: "that are leased and logged in, over the time of leasing and the time of logging in", Better: analysis.More,
		Per: analysis.PerWindow, Range: analysis.Amounts, Value: func(r input) float64 {
			lease := r.Get("lease.through_seconds")
			if math.IsNaN(lease) {
				lease = 0 // the login is the lease
			}
			return analysis.Over(r.Get("login.through"), lease+r.Get("login.through_seconds"))
		}},
	analysis.Metric{Name: IdlePSSMiB, Unit: "MiB", Text: "memory of the device's processes before the first client",
		Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts,
		Value: analysis.PositiveField("idle_pss_mib")},
	analysis.Metric{Name: LoggedPSSMiB, Unit: "MiB", Text: "and after the last login", Better: analysis.Less,
		Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.PositiveField("logged_pss_mib")},
	analysis.Metric{Name: PSSKiBPerClient, Unit: "KiB", Text: "growth of that memory, over the clients that got in",
		Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Changes, Value: pssPerClient},
)

// phaseFigures returns the metrics of one phase, with its prefix. They read the values of the record's key for that
// phase.
func phaseFigures(prefix string) []analysis.Metric {
	var out []analysis.Metric
	for _, m := range phaseMetrics {
		compute := m.Value
		m.Name, m.Per = prefix+m.Name, analysis.PerWindow
		if m.Short != "" {
			m.Short += "/" + prefix[:len(prefix)-1]
		}
		m.Value = func(r input) float64 {
			r.Values = r.WithPrefix(prefix[:len(prefix)-1] + ".")
			return compute(r)
		}
		out = append(out, m)
	}
	return out
}

// busyPct returns a function that reads a share in percent.
func busyPct(name string) func(input) float64 {
	return func(r input) float64 { return 100 * r.Get(name) }
}

// msPerClient returns a CPU time in ms for each client that got through.
func msPerClient(r input, ns float64) float64 { return analysis.Over(ns/1e6, r.Get("through")) }

// pssPerClient returns the growth of the device's memory over the clients that got through, KiB. It is NaN if the
// device died. It is negative if the device gave memory back.
func pssPerClient(r input) float64 {
	if !(r.Get("logged_pss_mib") > 0) {
		return math.NaN()
	}
	return analysis.Over(1024*(r.Get("logged_pss_mib")-r.Get("idle_pss_mib")), r.Get("login.through"))
}

// roleNs returns the CPU time of a role, ns; 0 if the record has none.
func roleNs(r input, name string) float64 { return r.Values["role_ns."+name] }
