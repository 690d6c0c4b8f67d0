package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// check is a line of the page of health.
type check struct {
	What, Network, Word, Text string // Word: "good", "warn" or "bad"
}

// healthBody is what the page of health shows.
type healthBody struct {
	health
	Checks []check
	Counts []countTable
	dns    func(control.Status) (asked, failed uint64) // of a network in the last minutes
}

// countTable is the counters of a part of a network that are not 0.
type countTable struct {
	Title string
	Rows  []countRow
}

type countRow struct {
	Word  string
	Count uint64
}

func newHealthBody(h health, dns func(control.Status) (asked, failed uint64)) healthBody {
	b := healthBody{health: h, dns: dns}
	all := h.Status.Networks
	if len(all) == 0 {
		all = []control.Status{h.Status}
	}
	for _, n := range all {
		b.addChecks(n)
		for _, part := range []countTable{newCounts("DNS", n.DNS), newCounts("DHCP", n.DHCP), newCounts("RADIUS", n.RADIUS),
			newCounts("Portal", n.Portal), newCounts("Packets", n.Packets), newCounts("Repairs", n.Repairs)} {
			if len(part.Rows) > 0 {
				if n.Network != "" {
					part.Title += " of " + n.Network
				}
				b.Counts = append(b.Counts, part)
			}
		}
	}
	if own := newCounts("Admin page", h.Status.Admin); len(own.Rows) > 0 {
		b.Counts = append(b.Counts, own)
	}
	return b
}

// addChecks adds the lines of a network.
func (b *healthBody) addChecks(n control.Status) {
	add := func(what, word, format string, args ...any) {
		b.Checks = append(b.Checks, check{what, n.Network, word, fmt.Sprintf(format, args...)})
	}
	word, text := "good", n.Datapath
	if n.Why != "" {
		text += ": " + n.Why
		if !strings.HasSuffix(n.Datapath, ", flow cache") { // which is as fast, and made for rules such as [nat]'s
			word = "warn"
		}
	}
	add("Data path", word, "%s", text)
	for _, s := range n.Servers {
		word, text := serverState(s)
		add("RADIUS, "+s.Purpose, word, "%s %s", s.Server, text)
	}
	for _, p := range n.Providers {
		word, text := serverState(control.Server{Asked: p.Asked, Up: p.Up, Why: p.Why})
		add("OpenID provider", word, "%s, %s: %s", p.Name, p.Issuer, text)
	}
	for _, p := range n.Pools {
		add("DHCP pool", poolState(p), "%s – %s: %d of %d addresses are leased", p.First, p.Last, p.Leased, p.Size)
	}
	if n.DNS != nil {
		word = "good"
		asked, failed := b.dns(n)
		if asked > 100 && failed > asked/20 {
			word = "warn"
		}
		add("DNS", word, "%d questions in the last ten minutes, %d failed", asked, failed)
	}
	if n.Unkept != "" {
		add("Disk", "bad", "sessions are not kept: %s", n.Unkept)
	}
	if n.Outbox > 0 || n.Aside > 0 {
		add("Accounting", "warn", "%d events wait for a server, %d are set aside", n.Outbox, n.Aside)
	}
	if n.Users != nil && n.Users.Problem != "" {
		add("Users' file", "bad", "%s", n.Users.Problem)
	}
	if n.Listed != nil && n.Listed.Problem != "" {
		add("Devices' file", "bad", "%s", n.Listed.Problem)
	}
	if n.IPv6 != nil && n.IPv6.Delegation != "" {
		add("Prefix delegation", "bad", "%s", n.IPv6.Delegation)
	}
}

// serverState is how a RADIUS server is.
func serverState(s control.Server) (word, text string) {
	switch {
	case !s.Up:
		return "bad", "does not answer: " + s.Why
	case !s.Asked:
		return "good", "was not asked yet"
	}
	return "good", "answers"
}

// poolState is whether addresses are left to lease.
func poolState(p control.Pool) string {
	switch share := float64(p.Leased) / float64(p.Size); {
	case share >= 1:
		return "bad"
	case share >= 0.9:
		return "warn"
	}
	return "good"
}

// newCounts lists counters that are not 0, the largest first.
func newCounts(title string, counts map[string]uint64) (t countTable) {
	t.Title = title
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		if counts[word] > 0 {
			t.Rows = append(t.Rows, countRow{word, counts[word]})
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b countRow) int {
		switch {
		case a.Count > b.Count:
			return -1
		case a.Count < b.Count:
			return 1
		}
		return 0
	})
	return t
}
