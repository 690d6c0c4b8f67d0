package gateway

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/forwarding"
)

// forwardingState tells whether the kernel forwards packets at the gateway's interfaces. Other programs can switch that
// off for all interfaces at once (net.ipv4.ip_forward = 0).
type forwardingState struct {
	mu              sync.Mutex
	switchedOnAgain uint64 // times that it was switched on again
	whyOff          string // why it is off; "": it is on
}

// showIn adds to a status that nothing is forwarded.
func (p *forwardingState) showIn(st *control.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Repairs["forwarding-again"] = p.switchedOnAgain
	if p.whyOff != "" {
		kind, _, _ := strings.Cut(st.Datapath, ",")
		st.Datapath, st.Why = kind+", closed", p.whyOff
	}
}

// openForwarding follows the switch. Where nothing passes without the daemon, forwarding is switched off again before
// the data path is closed.
func (g *gateway) openForwarding(context.Context) (opened, error) {
	o := opened{run: g.keepForwarding}
	if kindOf(g.cfg).Outlives == 0 {
		o.close = forwardingSwitch(g.cfg).Off
	}
	return o, nil
}

// forward switches forwarding on.
func (g *gateway) forward() error { return forwardingSwitch(g.cfg).On(crossings(g.cfg)...) }

// keepForwarding switches forwarding on again when other programs switch it off, until ctx ends or Detach restores the
// former setting.
func (g *gateway) keepForwarding(ctx context.Context) error {
	s, index := forwardingSwitch(g.cfg), map[string]int{}
	for _, name := range crossings(g.cfg) {
		if dev, err := net.InterfaceByName(name); err == nil {
			index[name] = dev.Index
		}
	}
	noted, err := s.HasNote()
	if err != nil {
		return err
	}
	return forwarding.Follow(ctx, func() bool {
		now, err := s.HasNote()
		if noted && !now {
			return err == nil // Detach, by force
		}
		enabled := g.switchOn(s, index)
		if now, err := s.HasNote(); err == nil {
			noted = noted || now
		}
		return enabled
	})
}

// switchOn switches forwarding on at the gateway's interfaces, and reports whether it is on. An interface
// that was made anew with the name is left alone: nothing judges its packets.
func (g *gateway) switchOn(s forwarding.Switch, index map[string]int) bool {
	var off []string
	for name, i := range index {
		if dev, err := net.InterfaceByName(name); err != nil || dev.Index != i {
			return true // the data path ends
		}
		if enabled, err := forwarding.Forwards(name); err == nil && !enabled {
			off = append(off, name)
		}
	}
	slices.Sort(off)
	where := strings.Join(off, " and ")
	p := &g.switched
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(off) == 0 {
		p.whyOff = ""
		return true
	}
	err := s.On(crossings(g.cfg)...)
	if err == nil {
		p.whyOff = ""
		p.switchedOnAgain++
		g.log.Warn("forwarding was switched off, which stops all clients, and gatewayd switched it on again: if somebody "+
			"sets net.ipv4.ip_forward to 0, take that out of /etc/sysctl.d; to stop clients, stop gatewayd", "interfaces", where)
		return true
	}
	reason := "forwarding is off at " + where + ", so nothing passes: " + err.Error()
	if p.whyOff != reason {
		p.whyOff = reason
		g.log.Error("forwarding was switched off, which stops all clients, and cannot be switched on again: trying every "+
			"second", "interfaces", where, "err", err)
	}
	return false
}
