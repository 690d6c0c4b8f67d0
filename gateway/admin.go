package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
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
	server *admin.Server // nil: there is none
}

// part returns the part that serves the page. lans are the networks of clients as they are now.
func (a *adminPage) part(cfg *config.Config, log *slog.Logger, answers control.Answers,
	lans func() []*config.Config) part {
	return part{"admin page", func(context.Context) (o opened, err error) {
		if !cfg.Admin.On() {
			return o, nil
		}
		if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
			return o, err
		}
		c := cfg.Admin
		a.server, err = admin.New(admin.Config{
			Listen: c.Listen, Answers: answers, Accounts: c.Accounts, Cert: c.TLSCert, Key: c.TLSKey,
			TrustedProxies: c.TrustedProxies, UserHeader: c.UserHeader, Idle: c.Idle, Longest: c.Longest,
			StateDir: cfg.StateDir, Log: log,
			Findings:  func() []admin.Finding { return adminFindings(cfg) },
			IsClients: func(peer netip.Addr) bool { return !onLAN(lans(), c.Address().Addr()) && onLAN(lans(), peer) },
			Whois: func(ctx context.Context, endpoint netip.AddrPort, at time.Time) ([]flowlog.Search, error) {
				logs := FlowLogs(&config.Config{Networks: lans()})
				return logs, flowlog.FindAll(ctx, logs, endpoint, at)
			},
		})
		if err != nil {
			a.server = nil
			return o, err
		}
		return opened{run: a.server.Run, close: a.server.Close}, nil
	}}
}

// showIn adds the page to a status.
func (a *adminPage) showIn(st *control.Status) {
	if a.server != nil {
		state := a.server.State()
		st.Admin, st.AdminPage = adminCounts(a.server.Stats()), &state
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
		if a.server != nil {
			a.server.Reload()
		}
		return reload()
	}
}

// onLAN reports whether an address is of one of several networks of clients.
func onLAN(all []*config.Config, addr netip.Addr) bool {
	for _, n := range all {
		if addr.IsValid() && (n.LAN.Network().Contains(addr) || n.LAN.Address6.IsValid() &&
			n.LAN.Address6.Masked().Contains(addr) || n.LAN.ClientPrefixes.Pool.IsValid() &&
			n.LAN.ClientPrefixes.Pool.Contains(addr)) {
			return true
		}
	}
	return false
}

// adminFindings are what check-config says of a running gateway.
func adminFindings(cfg *config.Config) (all []admin.Finding) {
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
		s.refuse(err)
	} else if accounts.State().Number == 0 {
		s.addFinding(Warning, "%s: %s has no account, so nobody can log in at the admin page: gatewayd admin set NAME",
			s.LineOf("admin.accounts"), a.Accounts)
	}
	if a.TLSCert != "" {
		if err := certificate.CheckFiles(a.TLSCert, a.TLSKey); err != nil {
			s.addFinding(Warning, "%s: %v; until then nobody gets into the admin page", s.LineOf("admin.tls_cert"), err)
		}
	}
	if addr := a.Address().Addr(); addr.IsValid() && onLAN([]*config.Config{s.Config}, addr) {
		s.addFinding(Warning, "%s: %s is in the LAN, so clients reach the admin page and may guess passwords: take another "+
			"address unless that is meant", s.LineOf("admin.listen"), a.Listen)
	}
}
