package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/client/persona"
)

// autoconfigure makes the persona's IPv6 addresses: by SLAAC, or, where it has a static IPv4 address and so nobody
// advertises, the one that SLAAC would make. The caller has locked state.
func (c *personaClient) autoconfigure(ctx context.Context) (tries Tries, err error) {
	put := func(ip netip.Addr) error {
		c.held6 = append(c.held6, ip)
		return c.host.link.Put6(ip, c.mac())
	}
	ip, router := persona.AutoAddress(c.cfg.LAN6, c.mac()), persona.Router{Addr: c.cfg.Gateway6}
	if c.static.IsValid() {
		tries, err = Tries{Count: 1}, put(ip)
	} else {
		var a persona.Addresses6
		a, tries, err = c.host.ndp.Configure(ctx, c.mac(), put)
		router = a.Router
	}
	if err == nil {
		err = c.host.link.SetRouter6(router.Addr, router.MAC)
	}
	if err != nil {
		return tries, errors.Join(fmt.Errorf("making its IPv6 address: %w", err), c.dropAddresses6())
	}
	c.setIP(ip)
	return tries, nil
}

// dropAddresses6 takes the persona's IPv6 addresses away, which tells nobody. The caller has locked state.
func (c *personaClient) dropAddresses6() error {
	var errs []error
	for _, ip := range c.held6 {
		errs = append(errs, c.host.link.Remove6(ip))
	}
	c.held6 = nil
	c.ip6.Store(nil)
	return errors.Join(errs...)
}
