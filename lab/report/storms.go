package report

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// stormColumns are the terminal's table of storms.
var stormColumns = []column[analysis.StormCell]{
	{head: "DUT", left: true, value: func(c analysis.StormCell) string { return result.OneLine(c.DUT) }},
	{head: "clients", once: true, value: func(c analysis.StormCell) string { return fmt.Sprint(c.Clients) }},
	{head: "they come", left: true, once: true, value: arrival},
	{head: "storms", drop: 1, value: func(c analysis.StormCell) string { return fmt.Sprint(c.Storms) }},
	{head: "failed", value: failedText},
	{head: "retried", drop: 5, value: func(c analysis.StormCell) string { return shareText(c.Login.Retried, c.Login.Asked) }},
	{head: "leases/s", drop: 6, value: func(c analysis.StormCell) string {
		if !c.DeviceLeases {
			return none
		}
		return digits3(c.Lease.PerSecond.Mean)
	}},
	{head: "logins/s", left: true, value: func(c analysis.StormCell) string {
		return strings.TrimSpace(digits3(c.Login.PerSecond.Mean) + " " + bounds(c.Login.PerSecond, digits3))
	}},
	{head: "p50", drop: 4, value: func(c analysis.StormCell) string { return millis(c.Login.P50Ms.Mean) }},
	{head: "p99", value: func(c analysis.StormCell) string { return millis(c.Login.P99Ms.Mean) }},
	{head: "max", drop: 3, value: func(c analysis.StormCell) string { return millis(c.Login.MaxMs.Mean) }},
	{head: "CPU/login", value: func(c analysis.StormCell) string { return millis(c.Login.RouterMs.Mean) }},
	{head: "RADIUS/login", drop: 2, value: func(c analysis.StormCell) string { return spent(c.Login.RadiusMs.Mean) }},
	{head: "KiB/client", drop: 7, value: func(c analysis.StormCell) string { return digits3(c.PSSKiBPerClient.Mean) }},
	{head: "limit", left: true, value: func(c analysis.StormCell) string { return limitText(c.Login) }},
}

// arrival says how the clients of a cell came.
func arrival(c analysis.StormCell) string {
	if c.LoginRate == 0 {
		return "all at once"
	}
	return trimmed(c.LoginRate, 4) + "/s"
}

// failedText is how many clients of all storms gave up, and of how many it is
// when any did.
func failedText(c analysis.StormCell) string {
	if c.Storms == 0 {
		return none
	}
	text := shareText(c.Login.Failed(), c.Login.Asked)
	if c.Died > 0 {
		text += ", died"
	}
	return text
}

func shareText(n, of int) string {
	switch {
	case of == 0:
		return none
	case n == 0:
		return "0"
	}
	return fmt.Sprintf("%d of %d", n, of)
}

// spent is millis of CPU time; next to nothing is none at all.
func spent(n analysis.Number) string {
	if n == 0 {
		return none
	}
	return millis(n)
}

// millis prints milliseconds, as seconds from one on.
func millis(n analysis.Number) string { return micros(1000 * n) }

// limitText says what storms were held up by, and how many by which where they differ.
func limitText(p analysis.StormPhase) string {
	if len(p.Limits) < 2 {
		return limitWord(p.Limit())
	}
	var parts []string
	for _, l := range p.Limits {
		parts = append(parts, fmt.Sprintf("%s (%d)", limitWord(l.Text), l.Count))
	}
	return strings.Join(parts, ", ")
}

// limitWord says in words what a storm was held up by.
func limitWord(limit string) string {
	switch limit {
	case result.LimitDevice:
		return "device: CPU full"
	case result.LimitWaiting:
		return "device: it waits"
	case result.LimitGenerator:
		return "client host's CPU"
	case result.LimitRadius:
		return "RADIUS server's CPU"
	case result.LimitRate:
		return "none: keeps pace"
	}
	return nonEmpty(limit, none)
}

const stormReading = "a login is a portal's own sequence from the client's first request to the portal's word that it is in; " +
	"logins/s is how many got in over the time until the last of them was; p50, p99 and max count from the moment each client was due, " +
	"over those that got in; CPU/login is the router's, exact, until half a second after the last login; limit is whose CPU was full, " +
	"85 % or more: where it is not the device, the device may be faster than shown."

// reasonsNamed bounds the reasons a line under the table names.
const reasonsNamed = 3

// stormRemarks say how storms broke.
func stormRemarks(cells []analysis.StormCell) (out []string) {
	for _, c := range cells {
		name := fmt.Sprintf("%s, %s", c.DUT, counted(c.Clients, "client"))
		for _, part := range []struct {
			what string
			n    int
			list []analysis.Tally
		}{
			{"got no lease", c.Lease.Failed(), c.Lease.Failures},
			{"did not get in", c.Login.Failed(), c.Login.Failures},
			{"asked again for a lease", c.Lease.Retried, c.Lease.Refusals},
			{"tried more than once to log in", c.Login.Retried, c.Login.Refusals},
			{"ended by itself", c.Died, c.Deaths},
		} {
			if part.n == 0 {
				continue
			}
			who := shareText(part.n, c.Login.Asked) + " clients"
			if part.what == "ended by itself" {
				who = "the device, in " + shareText(part.n, c.Storms) + " storms,"
			}
			out = append(out, fmt.Sprintf("%s: %s %s: %s", name, who, part.what, namedReasons(part.list)))
		}
	}
	return out
}

// namedReasons are the most frequent reasons.
func namedReasons(list []analysis.Tally) string {
	var texts []string
	for i, r := range list {
		if i == reasonsNamed {
			texts = append(texts, fmt.Sprintf("%s more", counted(len(list)-i, "reason")))
			break
		}
		texts = append(texts, fmt.Sprintf("%d × such as: %s", r.Count, r.Text))
	}
	return strings.Join(texts, "; ")
}
