// The choice of how packets of admitted clients are forwarded: redirected by the programs, by the cache of flows
// (flows.go), or by the kernel's stack. The programs read the choice from their settings.

package ebpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// Packets are redirected while the stack could do nothing else with them than send them to the hop that the cache
// knows. Everything that might is judged here and followed, so the programs redirect only while the daemon lives: it
// renews a stamp in the settings.
const redirectLife = 3 * time.Second

// reasons say why packets are left to the kernel's stack instead of being redirected, by what causes that; "": it does
// not.
type reasons struct {
	rules    string // netfilter's rules
	policies string // IPsec
	routing  string
	programs string // of others behind ours, which redirected packets never meet

	rules6, routing6 string // why IPv6 packets are left to the stack; packets of both are for policies and programs

	ruled    bool           // connections are tracked: netfilter has rules, which can be read, or the log has one
	variance stack.Variance // how they decide about packets one by one

	ruled6    bool // the same for IPv6; not where connections are logged, whose packets the stack counts
	variance6 stack.Variance
}

// first returns the reason to name.
func (r reasons) first(f Forward) string {
	switch f {
	case ForwardStack:
		return "as configured (datapath.forward)"
	case ForwardRedirect:
		r.rules = ""
	}
	for _, reason := range []string{r.rules, r.policies, r.routing, r.programs} {
		if reason != "" {
			return reason
		}
	}
	return ""
}

// first6 returns the reason to name for IPv6.
func (r reasons) first6(f Forward) string {
	r.rules, r.routing = r.rules6, r.routing6
	return r.first(f)
}

// choose judges some of the reasons again, and selects redirecting or the stack.
func (d *Datapath) choose(judge ...func(*reasons)) {
	d.choosing.Lock()
	defer d.choosing.Unlock()
	before := d.reasons
	for _, j := range judge {
		j(&d.reasons)
	}
	if d.reasons.programs != "" && d.reasons.programs != before.programs {
		d.cfg.Log.Warn("the stack forwards, because redirected packets might miss programs at tc", "why", d.reasons.programs)
	}
	reason, reason6 := d.reasons.first(d.cfg.Forward), d.reasons.first6(d.cfg.Forward)
	d.forward6(reason6)
	if err := d.forward(reason); err != nil {
		d.cfg.Log.Error("choosing who forwards", "redirect", reason == "", "why", reason, "err", err)
	}
	why, why6 := redirecting, redirecting
	if reason != "" {
		why = d.uncached(d.reasons, d.reasons.ruled, d.reasons.variance)
	}
	if reason6 != "" {
		why6 = d.uncached6(d.reasons)
	}
	d.cache(why, why6)
}

const redirecting = "packets are redirected"

// judgeRules reads netfilter's rules and IPsec's policies.
func (d *Datapath) judgeRules(r *reasons) {
	names, err := stack.Rules(guarding, d.lan.Name, d.wan.Name)
	r.ruled = err == nil && (len(names) > 0 || d.cfg.Flows)
	r.variance = d.readVariance(unix.NFPROTO_IPV4, r.ruled)
	switch {
	case d.cfg.Flows:
		r.rules = "clients' connections are logged (flowlog.enabled)"
	case err != nil:
		r.rules = "netfilter's rules cannot be read: " + err.Error()
	case len(names) > 0:
		r.rules = "netfilter has rules in " + names[0]
	default:
		r.rules = ""
	}
	d.judgeRules6(r)
	if r.policies, err = stack.Policies(); err != nil {
		r.policies = err.Error()
	}
}

// readVariance reads how the rules decide about packets of a family one by one, if they are read for the cache.
func (d *Datapath) readVariance(family uint8, ruled bool) stack.Variance {
	if !ruled || d.cfg.FlowCache != FlowCacheAuto {
		return stack.Variance{Marks: true}
	}
	// What counts connections decides about the first packet of each alone, which is never cached.
	steady := func(family uint8, table string) bool {
		return guarding(family, table) || guard.CountsConnections(family, table)
	}
	v, err := stack.ReadVariance(family, steady,
		stack.Crossing{LAN: d.lan.Name, WAN: d.wan.Name, LANIndex: d.lan.Index, WANIndex: d.wan.Index})
	if err != nil {
		v.Established = "netfilter's rules cannot be read: " + err.Error()
	}
	return v
}

// judgeRouting reads routing rules, routes and links.
func (d *Datapath) judgeRouting(r *reasons) {
	var err error
	if r.routing, err = stack.ByDestination(d.lan, d.wan, d.net.Prefix()); err != nil {
		r.routing = err.Error()
	}
	d.judgeRouting6(r)
}

// judgePrograms looks at other programs and filters at tc of the incoming side. It logs those that handle packets
// before ours, and remembers the list for observe.
func (d *Datapath) judgePrograms(r *reasons) {
	var others []string
	for _, h := range d.hooks(d.lan, d.wan) {
		c, err := programsAt(h, d.cfg.ForeignPins)
		d.judgedPrograms[h.name] = c.attached // nil with an error: judged again at the next look
		if err == nil {
			d.warn(h, c)
		}
		if h.egress {
			continue // where redirected packets leave, all programs see them
		}
		filters, e := d.filters(h)
		if err = errors.Join(err, e); err != nil {
			delete(d.judgedPrograms, h.name)
			r.programs = err.Error()
			return
		}
		for _, other := range append(c.after, filters...) {
			others = append(others, fmt.Sprintf("%s at the ingress of %s", other, h.dev.Name))
		}
	}
	r.programs = ""
	if len(others) > 0 {
		r.programs = "programs of others are behind gatewayd's: " + strings.Join(others, ", ")
	}
}

// filters names the filters of others at a hook's clsact or ingress qdisc.
func (d *Datapath) filters(h hook) (names []string, err error) {
	all, err := stack.ConsistentList(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: h.dev.Index}}, h.filter().Parent)
	})
	if err != nil && !isGone(err) {
		return nil, fmt.Errorf("listing the filters of %s: %w", h.dev.Name, err)
	}
	for _, f := range all {
		if a := f.Attrs(); a.Handle != filterHandle || a.Priority != filterPriority {
			if name := "a filter of " + f.Type(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// guarding reports whether a table is a guard's, which redirected packets may skip.
func guarding(family uint8, table string) bool {
	return family != unix.NFPROTO_IPV4 && guard.IsOwnTable(table)
}

// forward has packets redirected, or left to the stack for a reason. Packets to clients are counted at
// every moment of the change: lan_out counts what wan_in leaves to the stack.
func (d *Datapath) forward(reason string) error {
	d.mu.Lock()
	same := d.stackReason == reason
	d.mu.Unlock()
	if same {
		return nil
	}
	// The status changes with the settings: who reads "stack" there may rely on it.
	err := d.change(func(s *gatewaySettings) { d.stackReason, s.RedirectUntil = reason, stamp(reason) })
	d.cfg.Log.Info("forwarding", "redirect", reason == "", "why", reason)
	return err
}

// stamp is the time until which packets are redirected, for a reason not to.
func stamp(reason string) uint64 {
	if reason != "" {
		return 0
	}
	return now() + uint64(redirectLife)
}

// renew renews the stamp without which the programs stop redirecting. Cached hops stay valid. Where the stamp had run
// out, because the daemon was stopped or got no CPU, changes may have been missed: everything is judged again first.
func (d *Datapath) renew() {
	d.mu.Lock()
	d.noteLapse()
	lapsed := d.stampLapsed
	d.stampLapsed = false
	d.mu.Unlock()
	if lapsed {
		d.cfg.Log.Warn("no packets were redirected and no flows cached for a while, because the daemon did not run: the "+
			"stack forwarded", "longer than", redirectLife)
		d.choose(d.judgeRules, d.judgeRouting, d.judgePrograms)
	}
	var flows error
	err := d.set(func(s *gatewaySettings) { s.RedirectUntil, flows = stamp(d.stackReason), d.putFlows() })
	err = errors.Join(err, flows, d.renew6())
	if d.noteError("the redirect", err) {
		d.cfg.Log.Error("renewing the redirect; trying again, and after 3 s the stack forwards", "err", err)
	}
}

// noteLapse notes for renew that the stamp has run out although packets are to be redirected, or flows to be
// cached. It is called before a stamp is replaced. mu is held.
func (d *Datapath) noteLapse() {
	if d.stackReason == "" && d.settings.RedirectUntil <= now() ||
		d.flowSettings.Until != 0 && d.flowSettings.Until <= now() ||
		d.flowSettings6.Until != 0 && d.flowSettings6.Until <= now() {
		d.stampLapsed = true
	}
}
