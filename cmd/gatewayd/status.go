package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
)

func statusCommand(socket *string) *cobra.Command {
	var asJSON, ready bool
	var network string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's state: clients by state, traffic, dropped packets by reason",
		Long: "Shows the daemon's state. Packets are counted as on the wire; up and down are sums of all clients since the " +
			"data\n" +
			"path began, also of those that have gone. docs/gateway-reference.md (What is counted) defines all counters.\n" +
			"The line \"data path\" says who forwards. Of ebpf: redirect; stack, and why; closed, while programs are missing " +
			"or\n" +
			"forwarding is off; detached, after `gatewayd detach --force` under the daemon. Of several networks there is a\n" +
			"line for each, and --network shows the rest of one.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return readiness(cmd.Context(), *socket)
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if network != "" {
				i := slices.IndexFunc(s.Networks, func(n control.Status) bool { return n.Network == network })
				if i < 0 {
					return fmt.Errorf("the daemon has no network %q", network)
				}
				s = s.Networks[i]
			}
			if asJSON {
				enc := json.NewEncoder(stdout)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			writeStatus(stdout, s, time.Now())
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&ready, "ready", false, "print nothing, and fail unless this gateway of a pair may serve")
	cmd.Flags().StringVar(&network, "network", "", "of this network alone, of several")
	return cmd
}

func writeStatus(w io.Writer, s control.Status, now time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s  %s\n", name, fmt.Sprintf(format, args...))
	}
	line("gatewayd", "%s, process %d, for %s", s.Version, s.PID, units.Duration(now.Sub(s.Since)))
	writePath(line, s)
	if s.NAT != "" {
		line("nat", "%s", s.NAT)
	}
	clients := []string{}
	total := 0
	for _, state := range control.States {
		clients = append(clients, fmt.Sprintf("%d %s", s.Sessions[state], state))
		total += s.Sessions[state]
	}
	line("clients", "%d, with %s to give: %s", total, counted(s.Addresses, "address", "addresses"),
		strings.Join(clients, ", "))
	line("leases", "%d", s.Leases)
	if s.IPv6 != nil {
		writeIPv6(line, *s.IPv6, now)
	}
	if s.Users != nil {
		line("users", "%s", accounts(*s.Users))
	}
	if r := s.Rooms; r != nil {
		line("rooms", "%s%s", counted(r.Guests, "guest", "guests"), unread(r.Problem))
	}
	if s.Listed != nil {
		line("devices", "%s", devices(*s.Listed))
	}
	if s.AdminPage != nil {
		line("admin", "%s", adminState(*s.AdminPage))
	}
	for _, r := range s.Servers {
		line("server", "%s for %s %s", r.Server, r.Purpose, serverState(r))
	}
	for _, p := range s.Providers {
		line("provider", "%s (%s) %s", plain(p.Name, 80), p.Issuer, answers(p.Asked, p.Up, p.Why))
	}
	line("up", "%s in %s", units.Bytes(s.Traffic.UpBytes), counted(s.Traffic.UpPackets, "packet", "packets"))
	line("down", "%s in %s", units.Bytes(s.Traffic.DownBytes), counted(s.Traffic.DownPackets, "packet", "packets"))
	writeKept(line, s, now)
	writeAllCounts(w, s)
}

// writeKept describes where sessions are kept, and what is still to be told of them.
func writeKept(line func(name, format string, args ...any), s control.Status, now time.Time) {
	if s.Unkept != "" {
		line("disk", "sessions are not kept: %s", plain(s.Unkept, 400))
	} else if s.DiskFree != nil {
		line("disk", "%s free at state_dir: logins fail when none is", units.Bytes(*s.DiskFree))
	}
	if s.Store != nil {
		line("store", "%s", storeState(*s.Store, now))
	}
	if s.Pair != nil {
		line("pair", "%s", pairState(*s.Pair))
	}
	if s.Outbox > 0 {
		line("accounting", "%s for a RADIUS server", counted(s.Outbox, "event waits", "events wait"))
	}
	if s.Aside > 0 {
		line("set aside", "%s, which no RADIUS server confirms", counted(s.Aside, "accounting event", "accounting events"))
	}
}

// writePath describes the data path or, with several networks, that of each.
func writePath(line func(name, format string, args ...any), s control.Status) {
	from := s.LAN
	if len(s.Networks) > 0 {
		from = counted(len(s.Networks), "network", "networks")
	}
	line("data path", "%s%s, from %s to %s", s.Datapath, because(s.Why), from, s.WAN)
	for _, n := range s.Networks {
		line("network", "%s", networkLine(n))
	}
}

// because returns a reason in parentheses; "" for none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + plain(why, 400) + ")"
}

// networkLine describes one of several networks.
func networkLine(n control.Status) string {
	clients := 0
	for _, of := range n.Sessions {
		clients += of
	}
	loggedIn := n.Sessions[control.States[len(control.States)-1]]
	return fmt.Sprintf("%-15s  %-15s  %s, %d logged in, up %s, down %s; %s%s", n.Network, n.LAN,
		counted(clients, "client", "clients"), loggedIn, units.Bytes(n.Traffic.UpBytes),
		units.Bytes(n.Traffic.DownBytes), n.Datapath, because(n.Why))
}

// writeIPv6 describes what clients have of IPv6.
func writeIPv6(line func(name, format string, args ...any), v control.IPv6, now time.Time) {
	text := fmt.Sprintf("%s of %s", counted(v.Addresses, "address", "addresses"), counted(v.Clients, "device", "devices"))
	if v.Contests > 0 {
		text += fmt.Sprintf(", %d contested", v.Contests)
	}
	for _, kind := range slices.Sorted(maps.Keys(v.Leases)) {
		if n := v.Leases[kind]; n > 0 {
			text += fmt.Sprintf(", %d by DHCPv6 (%s)", n, plain(kind, 40))
		}
	}
	line("ipv6", "%s", text)
	for _, p := range v.Delegated {
		use := "is replaced"
		if left := p.PreferredUntil.Sub(now); left > 0 {
			use = "in use for " + units.Duration(left)
		}
		line("delegated", "%s, %s, valid for %s", p.Prefix, use, units.Duration(max(0, p.ValidUntil.Sub(now))))
	}
	if v.Delegation != "" {
		line("delegated", "%s", plain(v.Delegation, 400))
	}
}

// serverState describes a RADIUS server.
func serverState(r control.Server) string { return answers(r.Asked, r.Up, r.Why) }

// answers says how a server or provider answers.
func answers(asked, up bool, why string) string {
	switch {
	case !up:
		return "does not answer: " + plain(why, 400)
	case !asked:
		return "was not asked yet"
	}
	return "answers"
}

// accounts describes the state of the users' file.
func accounts(u control.Users) string {
	text := counted(u.Accounts, "account", "accounts")
	if u.Accounts == 0 && u.Problem == "" {
		return text + ": nobody can log in by the users' file"
	}
	return text + unread(u.Problem)
}

// adminState describes the admin page.
func adminState(a control.AdminPage) string {
	if a.Closed != "" {
		return plain(a.Listen, 200) + ", closed: " + plain(a.Closed, 400)
	}
	return plain(a.Listen, 200) + ", " + counted(a.Accounts, "account", "accounts") + unread(a.Problem)
}

// devices describes the devices that come in without a login.
func devices(l control.Listed) string {
	return counted(l.Devices, "device", "devices") + " listed" + unread(l.Problem) + fmt.Sprintf("; %d remembered",
		l.Remembered)
}

// unread says why a file that has changed has no effect; "": it has.
func unread(problem string) string {
	first, more, several := strings.Cut(problem, "\n")
	switch {
	case several:
		return fmt.Sprintf(", as before the file was changed: %s (and %d more: see the log)", plain(first, 400), 1+
			strings.Count(more, "\n"))
	case first != "":
		return fmt.Sprintf(", as before the file was changed: %s", plain(first, 400))
	}
	return ""
}

// writeAllCounts writes the counters of all parts.
func writeAllCounts(w io.Writer, s control.Status) {
	writeCounts(w, "packets", s.Packets)
	writeCounts(w, "repairs", s.Repairs)
	writeCounts(w, "dhcp", s.DHCP)
	writeCounts(w, "dhcp6", s.DHCP6)
	writeCounts(w, "routers", s.RouterAdv)
	writeCounts(w, "neighbours", s.Neighbours)
	writeCounts(w, "dns", s.DNS)
	writeCounts(w, "radius", s.RADIUS)
	writeCounts(w, "portal", s.Portal)
	writeCounts(w, "uam", s.UAM)
	writeCounts(w, "pppoe", s.PPPoE)
	writeCounts(w, "devices", s.Devices)
	writeCounts(w, "ident", s.Ident)
	writeCounts(w, "admin", s.Admin)
	writeCounts(w, "flow log", s.Flows)
}

// writeCounts writes the counters above 0, the largest first. The first line begins with title.
func writeCounts(w io.Writer, title string, counts map[string]uint64) {
	words := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			if counts[a] > counts[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, word := range words {
		if counts[word] > 0 {
			fmt.Fprintf(w, "%-10s  %-20s %12d\n", title, plain(word, 40), counts[word])
			title = ""
		}
	}
}
