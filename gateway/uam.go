package gateway

import (
	"net"
	"net/netip"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/uam"
)

// elsewhere makes what speaks with a portal elsewhere; nil: there is none. p is the portal's configuration.
func (g *gateway) elsewhere(p portal.Config, sessions uam.Sessions, auth uam.Authenticator) (*uam.Server, error) {
	u := g.cfg.UAM
	if !u.On() {
		return nil, nil
	}
	out := uam.Config{
		PortalURL: u.PortalURL, Secret: u.Secret, NASID: u.NASID, Location: u.Location, Address: p.Address,
		Address6: p.Address6, HTTP: u.HTTP, Script: u.JSONP, Guard: &g.guard, Log: g.log,
	}
	if p.TLS != (portal.TLS{}) {
		out.Secure = strings.TrimSuffix(p.LoginURL(), "login")
	}
	// Portals and servers know the gateway by the same name.
	out.Called = g.cfg.RADIUS.CalledStationID
	if lan, err := net.InterfaceByName(g.cfg.LAN.Interface); err == nil && out.Called == "" {
		out.Called = uam.MAC(lan.HardwareAddr)
	}
	for _, s := range u.Schemes {
		out.Schemes = append(out.Schemes, uam.Scheme(s))
	}
	return uam.New(out, sessions, auth)
}

// uam warns of what makes a portal elsewhere less safe than it can be.
func (s *survey) uam() {
	u := s.UAM
	if !u.On() {
		return
	}
	warn := func(key, format string, args ...any) {
		s.addFinding(Warning, "%s: "+format, append([]any{s.LineOf(key)}, args...)...)
	}
	if strings.HasPrefix(u.PortalURL, "http://") {
		warn("uam.portal_url", "people type their passwords into a page that anybody on the network can read and change: "+
			"use https://")
	}
	if u.Secret == "" {
		warn("uam.portal_url", "there is no uam.secret_file: the portal cannot tell the gateway's redirects from forged "+
			"ones, and a password can be guessed from what the network carries")
	}
	if u.HTTP {
		warn("uam.http", "passwords come over plain HTTP: what hides them is weak")
	}
	if u.JSONP {
		warn("uam.jsonp", "every page that a device opens can read who is logged in, and log in or out")
	}
	if a, err := netip.ParseAddr(u.Host()); err == nil && s.LAN.Network().Contains(a) && a != s.LAN.Address.Addr() {
		warn("uam.portal_url", "%s is a client's address: clients that are not logged in do not reach it through the "+
			"gateway, and another client can take it", a)
	}
}

// uamCounts are the counts of a portal elsewhere.
func uamCounts(u uam.Stats) map[string]uint64 {
	return map[string]uint64{
		"login": u.Logins, "rejected": u.Rejected, "unavailable": u.Unavailable, "failed": u.Failed,
		"backed-off": u.BackedOff, "stale": u.Stale, "logout": u.Logouts,
	}
}
