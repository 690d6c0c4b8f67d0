package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/admin"
	"github.com/gateweigh/gateweigh/gateway/certificate"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// adminPage is the admin page of a daemon, which it has once. The zero value is none.
type adminPage struct {
	server atomic.Pointer[admin.Server] // nil: there is none, or not yet
	closed atomic.Pointer[control.AdminPage]
}

// adminClients are the networks of clients as they are now, for the admin page.
type adminClients struct {
	configs func() []*config.Config
	has     func(netip.Addr) bool // whether one of them has an address
}

// part returns the part that serves the page. Where its files are faulty it is served once they are not: the clients do
// not wait for it.
func (a *adminPage) part(cfg *config.Config, log *slog.Logger, answers control.Answers, lans adminClients) part {
	return part{"admin page", func(context.Context) (o opened, err error) {
		if !cfg.Admin.On() {
			return o, nil
		}
		return opened{run: func(ctx context.Context) error { return a.run(ctx, cfg, log, answers, lans) }}, nil
	}}
}

// run serves the page until ctx ends.
func (a *adminPage) run(ctx context.Context, cfg *config.Config, log *slog.Logger, answers control.Answers,
	lans adminClients) error {
	told := ""
	for ctx.Err() == nil {
		server, err := newAdmin(cfg, log, answers, lans)
		if err == nil {
			a.server.Store(server)
			a.closed.Store(nil)
			return errors.Join(server.Run(ctx), server.Close())
		}
		a.closed.Store(&control.AdminPage{Listen: cfg.Admin.Listen, Closed: err.Error()})
		if err.Error() != told {
			told = err.Error()
			log.Error("the admin page is not served: trying again", "listen", cfg.Admin.Listen, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	return nil
}

func newAdmin(cfg *config.Config, log *slog.Logger, answers control.Answers, lans adminClients) (*admin.Server, error) {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, err
	}
	c := cfg.Admin
	return admin.New(admin.Config{
		Listen: c.Listen, Answers: answers, Accounts: c.Accounts, Cert: c.TLSCert, Key: c.TLSKey,
		TrustedProxies: c.TrustedProxies, UserHeader: c.UserHeader, Idle: c.Idle, Longest: c.Longest,
		StateDir: cfg.StateDir, Log: log,
		Findings: func() []admin.Finding { return adminFindings(cfg, lans.configs()) },
		IsClients: func(peer netip.Addr) bool {
			return !onLAN(lans.configs(), c.Address().Addr()) && (onLAN(lans.configs(), peer) || lans.has(peer))
		},
		Whois: func(ctx context.Context, endpoint netip.AddrPort, at time.Time) ([]flowlog.Search, error) {
			logs := FlowLogs(&config.Config{Networks: lans.configs()})
			return logs, flowlog.FindAll(ctx, logs, endpoint, at)
		},
	})
}

// showIn adds the page to a status.
func (a *adminPage) showIn(st *control.Status) {
	if server := a.server.Load(); server != nil {
		state := server.State()
		st.Admin, st.AdminPage = adminCounts(server.Stats()), &state
	} else {
		st.AdminPage = a.closed.Load()
	}
}

func adminCounts(a admin.Stats) map[string]uint64 {
	return map[string]uint64{"login": a.Logins, "rejected": a.Rejected, "backed-off": a.BackedOff, "forged": a.Forged,
		"denied": a.Denied, "turned-away": a.TurnedAway, "change": a.Changes, "whois": a.Whois}
}

// reloading has the page's accounts and certificate read again with the configuration.
func (a *adminPage) reloading(reload func() control.ReloadReply) func() control.ReloadReply {
	if reload == nil {
		return nil
	}
	return func() control.ReloadReply {
		if server := a.server.Load(); server != nil {
			server.Reload()
		}
		return reload()
	}
}

// onLAN reports whether an address is of one of several networks of clients by their configuration, be they served or
// not.
func onLAN(all []*config.Config, addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(all, func(n *config.Config) bool {
		return slices.ContainsFunc(n.ClientNetworks(), func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// hasClient reports whether an address is of one of the network's clients, delegated to one or behind one.
func (g *gateway) hasClient(addr netip.Addr) bool {
	_, behind := g.behind.client(addr)
	return behind || g.isOfNetwork(addr)
}

// hasClient reports whether an address is of a client of a network that is served.
func (s *several) hasClient(addr netip.Addr) bool {
	return slices.ContainsFunc(s.all(), func(n *servedNetwork) bool {
		g, _ := n.state()
		return g != nil && g.hasClient(addr)
	})
}

// adminFindings are what check-config says of a running gateway, with the networks that it has since the last reload.
func adminFindings(cfg *config.Config, lans []*config.Config) (all []admin.Finding) {
	if len(cfg.Networks) > 0 {
		now := *cfg
		now.Networks = lans
		cfg = &now
	}
	for _, f := range append(CheckFiles(cfg), Check(cfg)...) {
		switch f.Weight {
		case Warning:
			all = append(all, admin.Finding{Weight: "warning", Text: f.Text})
		case Refusal:
			all = append(all, admin.Finding{Weight: "error", Text: f.Text})
		}
	}
	return all
}

// admin checks the files of the admin page, and whether clients reach it.
func (s *survey) admin() {
	a := s.Admin
	if !a.On() {
		return
	}
	if accounts, err := users.OpenOperators(a.Accounts, slog.New(slog.DiscardHandler)); err != nil {
		s.addFinding(Warning, "%s: %v; until then there is no admin page", s.LineOf("admin.accounts"), err)
	} else if accounts.State().Number == 0 {
		s.addFinding(Warning, "%s: %s has no account, so nobody can log in at the admin page: gatewayd admin set NAME",
			s.LineOf("admin.accounts"), a.Accounts)
	}
	if a.TLSCert != "" {
		if err := certificate.CheckFiles(a.TLSCert, a.TLSKey); err != nil {
			s.addFinding(Warning, "%s: %v; until then nobody gets into the admin page", s.LineOf("admin.tls_cert"), err)
		}
	}
	if at := a.Address(); at.IsValid() && s.running == 0 {
		l, err := net.Listen("tcp", at.String())
		if err == nil {
			l.Close()
		} else {
			s.addFinding(Warning, "%s: there is no admin page at %s: %v", s.LineOf("admin.listen"), a.Listen, err)
		}
	}
	if addr := a.Address().Addr(); addr.IsValid() && onLAN([]*config.Config{s.Config}, addr) {
		s.addFinding(Warning, "%s: %s is in the LAN, so clients reach the admin page and may guess passwords: take another "+
			"address unless that is meant", s.LineOf("admin.listen"), a.Listen)
	}
}
