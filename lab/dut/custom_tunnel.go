package dut

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// customTunnel is a tunnel described in an experiment file.
type customTunnel struct{ *Custom }

var _ Encapsulating = customTunnel{}

// newCustom makes a device that is described in an experiment file.
func newCustom(name string, spec experiment.CustomDUT) DUT {
	c := &Custom{name: name, spec: spec}
	if spec.Tunnel {
		return customTunnel{c}
	}
	return c
}

// Encapsulation has one header: the table's overhead, in bytes.
func (c customTunnel) Encapsulation() (e Encapsulation) {
	if c.spec.Overhead > 0 {
		e.Headers = []Header{{Name: "headers", Bytes: c.spec.Overhead}}
	}
	return e
}

// MTU is the largest packet that the tunnel takes, in bytes with its IP header.
func (c customTunnel) MTU() int { return c.mtu() }

// mtu is the table's MTU, or what the overhead leaves of the link between the gateways.
func (c *Custom) mtu() int { return cmp.Or(c.spec.MTU, OuterLink-c.spec.Overhead) }

// gatewayHosts returns the two gateways with the environment of a tunnel's commands on each. Both get the same random
// secret.
func gatewayHosts(env Env, mtu int) (list []*installedHost) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	far := netip.PrefixFrom(env.ServerIP, 24).Masked()
	for i, name := range env.Routers {
		p := &installedHost{Host: env.Host(name), gateway: name, vars: variables(env)}
		for key, value := range map[string]any{
			experiment.VarSide:    i + 1,
			experiment.VarOuterIf: env.Port([]string{"outer1", "outer2"}[i]),
			experiment.VarOuter:   env.Outer[i],
			experiment.VarPeer:    env.Outer[1-i],
			experiment.VarFar:     []netip.Prefix{far, env.LAN}[i],
			experiment.VarMTU:     mtu,
			experiment.VarSecret:  base64.StdEncoding.EncodeToString(secret),
		} {
			p.vars = append(p.vars, fmt.Sprintf("%s=%v", key, value))
		}
		list = append(list, p)
	}
	return list
}
