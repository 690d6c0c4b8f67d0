package gateway

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/visit"
)

// openProviders opens the logins at OpenID providers, whose hosts the data path opens for one device alone.
func (g *gateway) openProviders(context.Context) (o opened, err error) {
	if !g.cfg.Auth.Has(config.MethodOIDC) || !g.cfg.Portal.Enabled {
		return o, nil
	}
	never := g.dnsConfig().NeverOpen
	g.visits = visit.New(visit.Config{Open: g.dp.OpenFor, Log: g.log,
		Openable: func(addr netip.Addr) bool { return dns.Openable(addr, g.cfg.LAN.Address6.IsValid(), never) },
		Lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}})
	if g.providers, err = oidc.New(g.providersConfig()); err != nil {
		return o, err
	}
	return opened{run: g.providers.Run}, nil
}

// The data path has room for all addresses that may be open at once.
var _ [datapath.MaxVisits - visit.MaxOpen*oidc.DefaultDevices]struct{}

func (g *gateway) providersConfig() oidc.Config {
	out := oidc.Config{Profiles: map[string]oidc.Profile{}, Visitors: g.visits, Log: g.log}
	for _, p := range g.cfg.Profiles {
		out.Profiles[p.Name] = oidc.Profile{Sessions: p.SessionsPerUser, Limits: limitsOf(p)}
	}
	site := g.portalConfig(nil)
	for _, p := range g.cfg.OIDC {
		out.Providers = append(out.Providers, oidc.Provider{
			Name: p.Name, Label: cmp.Or(p.Label, p.Name), Issuer: p.Issuer, ClientID: p.ClientID, ClientSecret: p.Secret,
			Scopes: p.Scopes, CAFile: p.CAFile, UserClaim: p.User, Domains: p.Domains, RequiredClaim: p.Require,
			RequiredValues: p.Values, Profile: p.Profile, ProfileClaim: p.ProfileClaim, SessionTimeout: p.Session,
			LoginTime: p.LoginTime, Garden: p.Garden, RedirectURL: site.CallbackURL(p.Name)})
	}
	return out
}

// limitsOf are the limits of a profile.
func limitsOf(p config.Profile) session.Limits {
	return session.Limits{
		SessionTimeout: p.SessionTimeout, IdleTimeout: p.IdleTimeout, UpBytes: p.UpQuota, DownBytes: p.DownQuota,
		TotalBytes: p.TotalQuota, UpBps: p.UpRate, DownBps: p.DownRate, Connections: uint32(p.Connections)}
}

// showProviders adds to a status how the providers answer.
func (g *gateway) showProviders(st *control.Status) {
	if g.providers == nil {
		return
	}
	for _, p := range g.providers.States() {
		st.Providers = append(st.Providers, control.Provider{Name: p.Name, Issuer: p.Issuer, Asked: p.Asked,
			Up: p.Trouble == "", Why: p.Trouble})
	}
}

// endVisits closes what a device could reach while it logged in at a provider.
func (g *gateway) endVisits(s session.Session) {
	if g.providers != nil {
		g.providers.Close(s.MAC)
	}
}
