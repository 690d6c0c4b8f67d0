package report

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// stormColumns are the terminal's table of storms.
var stormColumns = []column[analysis.Cell]{
	{head: "DUT", left: true, value: func(c analysis.Cell) string { return result.OneLine(c.DUT()) }},
	{head: "clients", once: true, value: func(c analysis.Cell) string { return fmt.Sprint(c.Int(result.Clients)) }},
	{head: "they come", left: true, once: true, value: func(c analysis.Cell) string { return arrival(c.Number(result.LoginRate)) }},
	{head: "storms", drop: 1, value: func(c analysis.Cell) string { return fmt.Sprint(c.Pairs) }},
	{head: "failed", value: failedText},
	{head: "retried", drop: 5, value: func(c analysis.Cell) string {
		return shareText(c.Counts[logins.Login+logins.Retried], c.Counts[logins.Login+logins.Asked])
	}},
	{head: "leases/s", drop: 6, value: func(c analysis.Cell) string {
		if c.Counts[logins.DeviceLeases] == 0 {
			return none
		}
		return digits3(c.Device("lease_per_second").Mean)
	}},
	{head: "logins/s", left: true, value: func(c analysis.Cell) string {
		return strings.TrimSpace(digits3(c.Device("login_per_second").Mean) + " " + bounds(c.Device("login_per_second"), digits3))
	}},
	{head: "p50", drop: 4, value: func(c analysis.Cell) string { return millis(c.Device("login_p50_ms").Mean) }},
	{head: "p99", value: func(c analysis.Cell) string { return millis(c.Device("login_p99_ms").Mean) }},
	{head: "max", drop: 3, value: func(c analysis.Cell) string { return millis(c.Device("login_max_ms").Mean) }},
	{head: "CPU/login", value: func(c analysis.Cell) string { return millis(c.Device("login_router_ms").Mean) }},
	{head: "RADIUS/login", drop: 2, value: func(c analysis.Cell) string { return spent(c.Device("login_radius_ms").Mean) }},
	{head: "KiB/client", drop: 7, value: func(c analysis.Cell) string { return digits3(c.Device("pss_kib_per_client").Mean) }},
	{head: "limit", left: true, value: func(c analysis.Cell) string { return limitText(c, logins.Login) }},
}

// arrival says how the clients of a cell came.
func arrival(perSecond float64) string {
	if perSecond == 0 {
		return "all at once"
	}
	return trimmed(analysis.Number(perSecond), 4) + "/s"
}

// failed is how many clients of all storms did not get through a phase.
func failed(c analysis.Cell, phase string) int {
	return c.Counts[phase+logins.Asked] - c.Counts[phase+logins.Through]
}

// failedText is how many clients of all storms gave up, and of how many it is
// when any did.
func failedText(c analysis.Cell) string {
	if c.Pairs == 0 {
		return none
	}
	text := shareText(failed(c, logins.Login), c.Counts[logins.Login+logins.Asked])
	if c.Counts[logins.Died] > 0 {
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
func limitText(c analysis.Cell, phase string) string {
	limits := c.Tallies[phase+logins.Limits]
	switch len(limits) {
	case 0:
		return none
	case 1:
		return limitWord(limits[0].Text)
	}
	var parts []string
	for _, l := range limits {
		parts = append(parts, fmt.Sprintf("%s (%d)", limitWord(l.Text), l.Count))
	}
	return strings.Join(parts, ", ")
}

// limitWord says in words what a storm was held up by.
func limitWord(limit string) string {
	switch limit {
	case logins.LimitDevice:
		return "device: CPU full"
	case logins.LimitWaiting:
		return "device: it waits"
	case logins.LimitGenerator:
		return "client host's CPU"
	case logins.LimitRadius:
		return "RADIUS server's CPU"
	case logins.LimitRate:
		return "none: keeps pace"
	}
	return words.Or(limit, none)
}

const stormReading = "a login is a portal's own sequence from the client's first request to the portal's word that it is in; " +
	"logins/s is how many got in over the time until the last of them was; p50, p99 and max count from the moment each client was due, " +
	"over those that got in; CPU/login is the router's, exact, until half a second after the last login; limit is whose CPU was full, " +
	"85 % or more: where it is not the device, the device may be faster than shown."

// reasonsNamed bounds the reasons a line under the table names.
const reasonsNamed = 3

// stormRemarks say how storms broke.
func stormRemarks(cells []analysis.Cell) (out []string) {
	for _, c := range cells {
		name := fmt.Sprintf("%s, %s", c.DUT(), words.Counted(c.Int(result.Clients), "client"))
		for _, part := range []struct {
			what string
			n    int
			list []analysis.Tally
		}{
			{"got no lease", failed(c, logins.Lease), c.Tallies[logins.Lease+logins.Failures]},
			{"did not get in", failed(c, logins.Login), c.Tallies[logins.Login+logins.Failures]},
			{"asked again for a lease", c.Counts[logins.Lease+logins.Retried], c.Tallies[logins.Lease+logins.Refusals]},
			{"tried more than once to log in", c.Counts[logins.Login+logins.Retried], c.Tallies[logins.Login+logins.Refusals]},
			{"ended by itself", c.Counts[logins.Died], c.Tallies[logins.Deaths]},
		} {
			if part.n == 0 {
				continue
			}
			who := shareText(part.n, c.Counts[logins.Login+logins.Asked]) + " clients"
			if part.what == "ended by itself" {
				who = "the device, in " + shareText(part.n, c.Pairs) + " storms,"
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
			texts = append(texts, fmt.Sprintf("%s more", words.Counted(len(list)-i, "reason")))
			break
		}
		texts = append(texts, fmt.Sprintf("%d × such as: %s", r.Count, r.Text))
	}
	return strings.Join(texts, "; ")
}
