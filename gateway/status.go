package gateway

import (
	"fmt"
	"maps"
	"os"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/device"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// status returns the daemon's status. A part that cannot be read is logged and left out.
func (g *gateway) status() control.Status {
	word, reason := g.dp.Forwarding()
	st := control.Status{
		Version: g.version, PID: os.Getpid(), Since: timeline.Wall(g.began), Datapath: g.cfg.Datapath.Kind + ", " + word,
		Why: reason, Network: g.cfg.Name,
		LAN: g.cfg.LAN.Interface, WAN: g.cfg.WAN.Interface, Addresses: g.cfg.Addresses(),
		Sessions: g.table.States(), Outbox: g.table.Pending(), Aside: g.table.Aside(),
	}
	if err := g.table.Unkept(); err != nil {
		st.Unkept = fmt.Sprintf("%v; free space at state_dir (%s)", err, g.cfg.StateDir)
	}
	st.DiskFree = scarceSpace(g.cfg.StateDir)
	var err error
	if st.Packets, err = g.dp.Packets(); err != nil {
		g.log.Warn("reading what became of packets", "err", err)
	}
	st.Repairs = map[string]uint64{}
	if g.dp.Repairs != nil {
		st.Repairs = g.dp.Repairs()
	}
	g.switched.showIn(&st)
	g.showNAT(&st)
	g.showCounting(&st)
	total, err := g.dp.Total()
	if err != nil {
		g.log.Warn("reading the clients' counters", "err", err)
	}
	st.Traffic = control.Traffic{
		UpBytes: total.UpBytes, UpPackets: total.UpPackets, DownBytes: total.DownBytes, DownPackets: total.DownPackets}
	if g.cfg.Name == "" {
		g.store.showIn(&st)
	}
	if g.pair != nil {
		st.Pair = g.pair.state()
	}
	if g.pair == nil || g.pair.serving.Load() { // what clients reach is open
		g.served(&st)
		g.admin.showIn(&st)
		g.showIPv6(&st)
	}
	return st
}

// served adds the counters of the daemon's services.
func (g *gateway) served(st *control.Status) {
	if g.dhcp != nil {
		d := g.dhcp.Stats()
		st.Leases, st.Pools, st.DHCP = d.Leased, dhcpPools(d), dhcpCounts(d)
		maps.Copy(st.DHCP, ownCounts(g.own.stats()))
	}
	if g.dns != nil {
		st.DNS = dnsCounts(g.dns.Stats())
	}
	if g.users != nil {
		s := g.users.State()
		st.Users = &control.Users{Accounts: s.Number}
		if s.Problem != nil {
			st.Users.Problem = s.Problem.Error()
		}
	}
	g.showDevices(st)
	g.roams.showIn(st)
	g.showRooms(st)
	if g.pppoe != nil {
		st.PPPoE = pppoeCounts(g.pppoe.Counts())
		st.PPPoE["backed-off"] = g.pppoeAccess.backedOff.Load()
	}
	if g.ident != nil {
		st.Ident = identCounts(g.ident.Stats())
	}
	if g.flows != nil {
		st.Flows = flowCounts(g.flows.Stats())
	}
	if g.portal != nil {
		st.Portal = portalCounts(g.portal.Stats())
	}
	if g.uam != nil {
		st.UAM = uamCounts(g.uam.Stats())
	}
	if g.radius != nil {
		st.RADIUS = map[string]uint64{}
		for _, r := range g.radius.Stats() {
			st.Servers = append(st.Servers, serverState(r))
			for subject, n := range radiusCounts(r) {
				st.RADIUS[subject] += n
			}
		}
	}
	g.showProviders(st)
	if g.dynamic != nil {
		maps.Copy(st.RADIUS, askedCounts(g.dynamic.Stats()))
	}
}

func dhcpPools(d dhcp.Stats) (all []control.Pool) {
	for _, p := range d.Pools {
		all = append(all, control.Pool{First: p.First, Last: p.Last, Leased: p.Leased,
			Size: config.Range{First: p.First, Last: p.Last}.Size()})
	}
	return all
}

func dhcpCounts(d dhcp.Stats) map[string]uint64 {
	return map[string]uint64{
		"discover": d.Discovers, "request": d.Requests, "decline": d.Declines, "release": d.Releases, "inform": d.Informs,
		"offer": d.Offers, "ack": d.Acks, "nak": d.Naks, "malformed": d.Malformed, "relayed": d.Relayed,
		"bad-information": d.BadAgent, "spoofed": d.Spoofed,
		"still-there": d.StillThere,
		"exhausted":   d.Exhausted, "too-many": d.TooMany, "overloaded": d.Overloaded, "throttled": d.Throttled,
		"expired":     d.Expired,
		"store-error": d.StoreErrors, "listener-error": d.ListenerErrors, "send-error": d.SendErrors,
	}
}

func dnsCounts(d dns.Stats) map[string]uint64 {
	return map[string]uint64{
		"query": d.Queries, "forwarded": d.Forwarded, "local": d.Local, "refused": d.Refused, "failed": d.Failed,
		"garbage": d.Garbage, "foreign": d.Foreign, "busy": d.Busy, "throttled": d.Throttled,
		"opened": d.Opened, "open-error": d.OpenErrors, "open-refused": d.OpenRefused,
	}
}

func portalCounts(p portal.Stats) map[string]uint64 {
	return map[string]uint64{
		"redirect": p.Redirects, "probe": p.Probes, "login": p.Logins, "rejected": p.Rejected, "unavailable": p.Unavailable,
		"failed":     p.Failed,
		"backed-off": p.BackedOff, "forged": p.Forged, "logout": p.Logouts, "turned-away": p.Turned,
	}
}

func pppoeCounts(n pppoe.Counts) map[string]uint64 {
	return map[string]uint64{
		"padi": n.PADI, "padr": n.PADR, "offer": n.Offered, "begun": n.Begun, "refused": n.Refused, "displaced": n.Displaced,
		"throttled": n.Throttled, "malformed": n.Malformed, "stray": n.Strays, "lost": n.Lost,
	}
}

func ownCounts(o ownStats) map[string]uint64 {
	return map[string]uint64{"claim": o.Made, "claim-refused": o.Refused, "claim-conflict": o.Conflicts}
}

func deviceCounts(d device.Stats) map[string]uint64 {
	return map[string]uint64{"asked": d.Asked, "admitted": d.Admitted, "refused": d.Refused, "undecided": d.Undecided,
		"ended": d.Ended, "dropped": d.Dropped}
}

// showIn adds the counts of roams; nil: there is no store.
func (r *roams) showIn(to *control.Status) {
	if r != nil {
		to.Roams = r.counts()
	}
}

func (r *roams) counts() map[string]uint64 {
	return map[string]uint64{"in": r.in.Load(), "taken": r.taken.Load(), "out": r.out.Load(), "lost": r.lost.Load(),
		"failed": r.failed.Load()}
}

func identCounts(i ident.Stats) map[string]uint64 {
	return map[string]uint64{
		"answer": i.Named, "no-user": i.NoUser, "invalid": i.Invalid, "throttled": i.Throttled, "failed": i.Failed}
}

func askedCounts(d radius.DynamicStats) map[string]uint64 {
	return map[string]uint64{
		"disconnect": d.Disconnects, "coa": d.Changes, "dynamic-refused": d.Refused, "dynamic-forged": d.Forged,
		"dynamic-malformed": d.Malformed, "dynamic-repeated": d.Repeated,
		"dynamic-stranger": d.Unauthentic, "dynamic-outdated": d.Outdated,
	}
}

func serverState(r radius.Stats) control.Server {
	purpose := "logins"
	if r.Accounting {
		purpose = "accounting"
	}
	return control.Server{Server: r.Server.String(), Purpose: purpose, Asked: r.Asked, Up: r.Trouble == "", Why: r.Trouble}
}

func radiusCounts(r radius.Stats) map[string]uint64 {
	return map[string]uint64{
		"request": r.Requests, "retransmit": r.Retransmits, "answer": r.Answers, "timeout": r.Timeouts,
		"unsigned": r.Unsigned, "forged": r.Forged, "malformed": r.Malformed, "unexpected": r.Unexpected,
		"late": r.Late,
	}
}
