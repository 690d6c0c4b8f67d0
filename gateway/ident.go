package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// identPins is the folder of ident's programs, beside the data path's, which is not the same for every kind.
func identPins(cfg *config.Config) string { return cfg.Datapath.PinDir + "-ident" }

// identKey is the file of the key of tokens.
func identKey(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "ident.key") }

// identBurst: a host that asks may send the queries of this many seconds at once.
const identBurst = 5

// openIdent begins to follow connections and to take queries. It is called after the data path has attached its
// programs: ident's programs are put before those, so that they see packets first. If ident is not enabled, it removes
// the programs that a former daemon left.
func (g *gateway) openIdent(ctx context.Context) (o opened, err error) {
	cfg := g.cfg
	if !cfg.Ident.Enabled {
		return o, ident.RemoveWatch(identPins(cfg))
	}
	key, err := keptKey(identKey(cfg), ident.KeySize)
	if err != nil {
		return o, err
	}
	sealer, err := ident.NewSealer(key)
	if err != nil {
		return o, err
	}
	wc := ident.WatchConfig{WAN: cfg.WAN.Interface, Gateway: cfg.LAN.Address.Addr(),
		Gateway6: cfg.LAN.Address6.Addr(), Dir: identPins(cfg)}
	if cfg.Ident.Method == config.IdentNAT { // queries name the gateway's own port: connections from the LAN tell whose
		wc.LAN = cfg.LAN.Network()
	}
	if g.identWatch, err = ident.OpenWatch(wc); err != nil {
		return o, err
	}
	o.close = func() error { g.behind.notifyChanges(nil); return g.identWatch.Close() }
	known := g.behind.notifyChanges(g.watchNetwork) // networks behind clients; watchNetwork hears of changes
	if cfg.LAN.Address6.IsValid() {
		known = append(known, g.prefixes6()...)
	}
	if err := g.identWatch.Keep(known); err != nil { // forgets those that a former daemon left
		return o, err
	}
	g.ident = ident.New(ident.Config{
		Masquerade: cfg.Ident.Method == config.IdentMasquerade, Policy: identPolicy[cfg.Ident.Answer],
		UserPolicies: identExcept(cfg.Ident), Sealer: sealer,
		Rate:   budget.Rate{AtOnce: identBurst * cfg.Ident.Rate, EachSecond: float64(cfg.Ident.Rate)},
		UserOf: g.identified, Log: g.log,
	}, g.identWatch)
	asked, err := ident.Listen(ctx, cfg.WAN.Interface, cfg.LAN.Address6.IsValid())
	if err != nil {
		return o, err
	}
	o.run = func(ctx context.Context) error { return g.ident.Serve(ctx, asked) }
	o.close = func() error { asked.Close(); g.behind.notifyChanges(nil); return g.identWatch.Close() }
	return o, nil
}

// watchPrefixes takes queries about connections from the prefixes of which clients may have addresses now, and not from
// those of before.
func (g *gateway) watchPrefixes(before, now []netip.Prefix) {
	if g.identWatch == nil {
		return
	}
	for _, p := range before {
		if !slices.Contains(now, p) {
			g.watchNetwork(p, false)
		}
	}
	for _, p := range now {
		g.watchNetwork(p, true)
	}
}

// watchNetwork begins (found) or ends to take queries about connections from a network of clients.
func (g *gateway) watchNetwork(n netip.Prefix, found bool) {
	change := g.identWatch.Leave
	if found {
		change = g.identWatch.Take
	}
	if err := change(n); err != nil {
		g.log.Error("ident: following the networks of clients", "network", n, "err", err)
	}
}

// identExcept returns the users for whom replies tell something other than ident.answer.
func identExcept(c config.Ident) map[string]ident.Policy {
	except := map[string]ident.Policy{}
	for answer, users := range c.Users() {
		for _, user := range users {
			except[user] = identPolicy[answer]
		}
	}
	return except
}

var identPolicy = map[string]ident.Policy{
	config.AnswerName: ident.Name, config.AnswerToken: ident.Token, config.AnswerHidden: ident.Hidden,
}

// identified returns the user that is logged in at an address. A name that many people share identifies nobody.
func (g *gateway) identified(client netip.Addr) (u ident.User, ok bool) {
	s, known := g.table.Get(g.client(client))
	s = s.At(time.Now())
	if !known || s.State != session.Authenticated || s.Shared {
		return u, false
	}
	return ident.User{Name: s.User, Since: s.Began}, true
}

// IdentToken decodes a token of ident.answer = "token".
func IdentToken(cfg *config.Config, token string) (ident.Answer, error) {
	key, err := os.ReadFile(identKey(cfg))
	if err != nil {
		return ident.Answer{}, fmt.Errorf("reading the key of tokens: %w", err)
	}
	sealer, err := ident.NewSealer(key)
	if err != nil {
		return ident.Answer{}, fmt.Errorf("%s: %w", identKey(cfg), err)
	}
	return sealer.Open(token)
}
