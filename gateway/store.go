// The store that several gateways share: which records have copies there, and what operators see of it.

package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// sharedStore is the store that a daemon shares with others. The zero value is none.
type sharedStore struct {
	*cluster.Store
	roams sync.Map // network's name → *roams, of networks that are served
}

// part opens the store of a configuration, where it has one. sessions counts the clients that are logged in.
func (s *sharedStore) part(cfg *config.Config, d Daemon, sessions func() int) part {
	return part{"store", func(context.Context) (o opened, err error) {
		c := cfg.All()[0].Store // the same for all networks; their files have been read
		if c.Kind != config.StoreRedis {
			return o, nil
		}
		to := storeOptions(c)
		to.Version, to.Format, to.Newer, to.Log, to.Sessions = d.Version, session.FormatVersion, newerRecord, d.Log, sessions
		if to.Instance, err = storeInstance(cfg.StateDir); err != nil {
			return o, err
		}
		s.Store = cluster.Open(to)
		return opened{run: s.Run, close: s.Close}, nil
	}}
}

// storeOptions says where a store is, and how gatewayd logs in there. Each new connection reads the files again.
func storeOptions(c config.Store) cluster.Options {
	return cluster.Options{Addresses: c.Addresses, Master: c.SentinelMaster, User: c.User,
		Sentinels: cluster.Login{User: c.Sentinels.User, Password: c.Sentinels.Password},
		Key:       c.Key, Prefix: c.Prefix, Gateway: c.Name,
		Renew: func() (now cluster.Secrets, err error) {
			if c.PasswordFile != "" {
				if now.Password, err = config.Secret(c.PasswordFile); err != nil {
					return now, fmt.Errorf("store.password_file: %w", err)
				}
			}
			now.TLS, err = storeTLS(c.CAFile)
			return now, err
		}}
}

// reachStore warns of a store in which the gateway cannot log in now.
func (s *survey) reachStore() {
	if s.Store.Kind != config.StoreRedis {
		return
	}
	if err := cluster.Try(context.Background(), storeOptions(s.Store)); err != nil {
		s.addFinding(Warning, "%s: the store cannot be used now: %v; gatewayd runs without it, and writes to it when it can",
			s.LineOf("store.addresses"), err)
	}
}

// store warns of a store whose connections others on the network can read and change.
func (s *survey) store() {
	c := s.Store
	if c.Kind != config.StoreRedis || c.CAFile != "" {
		return
	}
	for _, at := range c.Addresses {
		host, _, _ := net.SplitHostPort(at)
		if addr, err := netip.ParseAddr(host); (err != nil || !addr.IsLoopback()) && host != "localhost" {
			s.addFinding(Warning, "%s: connections with %s are not encrypted: who is on the way reads the password and "+
				"sessions, and changes them: set store.ca_file, or see that the network between is the gateways' own",
				s.LineOf("store.addresses"), at)
			return
		}
	}
}

// storeTLS returns how connections are encrypted; nil: they are not.
func storeTLS(caFile string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil
	}
	authorities, err := config.Authorities(caFile)
	if err != nil {
		return nil, fmt.Errorf("store.ca_file: %w", err)
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, nil
}

// storeInstance tells this gateway from others with the same name, and from itself on a copy of its disk.
func storeInstance(stateDir string) (string, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", fmt.Errorf("making state_dir: %w", err)
	}
	key, err := keptKey(filepath.Join(stateDir, "store.id"), 16)
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return "", fmt.Errorf("reading which boot of the machine this is: %w", err)
	}
	return hex.EncodeToString(key) + "." + strings.TrimSpace(string(boot)), nil
}

// mirror returns the mirror of a network's sessions; nil: there is no store.
func (s *sharedStore) mirror(network string) *cluster.Mirror {
	if s.Store == nil {
		return nil
	}
	return s.Mirror(sessionKind(network))
}

// storedRecord returns a record as the store has it: the number of the oldest format that reads it, so that former
// versions of gatewayd read what they can, and the record.
func storedRecord(to, record []byte) []byte {
	return append(append(to, session.FormatOf(record)), record...)
}

// newerRecord reports whether only a newer gatewayd reads a record of the store.
func newerRecord(kind string, content []byte) bool {
	_, ofSessions := networkOfKind(kind)
	return ofSessions && len(content) > 0 && content[0] > session.FormatVersion
}

// shareGuesses has wrong passwords at all gateways with a network of this name count.
func (g *gateway) shareGuesses(context.Context) (o opened, err error) {
	if g.store.Store == nil {
		return o, nil
	}
	run, leave := g.guard.Share(g.store.Store, perNetwork("guesses", g.cfg.Name))
	return opened{run: run, close: func() error { leave(); return nil }}, nil
}

// mirrorTo has a table's records copied to a mirror; nil: to none.
func mirrorTo(m *cluster.Mirror, how *session.Options) {
	if m == nil {
		return
	}
	how.Written = func(r session.Record) {
		var content []byte
		if r.Data != nil {
			content = storedRecord(make([]byte, 0, 1+len(r.Data)), r.Data)
		}
		m.Changed(r.ID.String(), content)
	}
}

// recordsOf returns a table's records as a mirror compares them.
func recordsOf(table *session.Table) cluster.Source {
	return func(visit func(key string, content []byte) error) error {
		var content []byte
		return table.Records(func(r session.Record) error {
			content = storedRecord(content[:0], r.Data)
			return visit(r.ID.String(), content)
		})
	}
}

// showIn adds the state of the store to a status.
func (s *sharedStore) showIn(to *control.Status) {
	if s.Store == nil {
		return
	}
	state := s.State()
	to.Store = &control.Store{Name: s.Gateway, Up: state.Up, Why: state.Why, Since: state.Since, Waiting: state.Waiting,
		BehindMS: int(state.Behind.Milliseconds()), Foreign: state.Foreign, Newer: state.Newer,
		Refused: state.Refused}
}

// sessionOf returns the session of a voucher's use at another gateway, with the bytes that are known here.
func (s *sharedStore) sessionOf(u allowance.Use) (found session.Session, known bool) {
	of, served := s.roams.Load(u.Network)
	if !served {
		return found, false
	}
	return of.(*roams).sessionOf(u.Session)
}

// sessionKind returns the kind of a network's sessions in the store.
func sessionKind(network string) string { return perNetwork("sessions", network) }

// perNetwork is the name of something that each network has.
func perNetwork(what, network string) string {
	if network == "" {
		return what
	}
	return what + "." + network
}

// networkOfKind is the network of a kind that sessionKind returned.
func networkOfKind(kind string) (network string, is bool) {
	if kind == sessionKind("") {
		return "", true
	}
	return strings.CutPrefix(kind, sessionKind("")+".")
}

// eachSession calls visit with the sessions of all gateways, as the store has them, until visit fails. A record that
// cannot be read, as of a newer gatewayd, has an address alone.
func (s *sharedStore) eachSession(ctx context.Context, visit func(control.ClusterClient) error) error {
	all, err := s.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, kind := range m.Kinds {
			network, is := networkOfKind(kind)
			if !is {
				continue
			}
			err := s.Each(ctx, kind, m.Name, func(key string, r cluster.Record) error {
				if r.Owner != "" && r.Owner != m.Name {
					return nil // another gateway has taken it, in whose set it is
				}
				return visit(clientOfStore(m, network, key, r))
			})
			if err != nil {
				return err
			}
		}
	}
	return s.eachOfSites(ctx, all, visit)
}

// eachOfSites is eachSession for the sessions that gateways of a site have in a set of the site.
func (s *sharedStore) eachOfSites(ctx context.Context, all []cluster.Member,
	visit func(control.ClusterClient) error,
) error {
	kind := sessionKind("") // a gateway of a site has one network
	sites, err := s.Sites(ctx, kind, all)
	if err != nil {
		return err
	}
	for _, site := range sites {
		err := s.Each(ctx, kind, site, func(key string, r cluster.Record) error {
			by := cluster.Member{Name: cmp.Or(r.Owner, site)}
			if i := slices.IndexFunc(all, func(m cluster.Member) bool { return m.Name == r.Owner }); i >= 0 {
				by = all[i]
			}
			return visit(clientOfStore(by, "", key, r))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clientOfStore returns a record of a gateway as operators see it.
func clientOfStore(of cluster.Member, network, key string, r cluster.Record) control.ClusterClient {
	c := control.ClusterClient{Gateway: of.Name, Network: network, AsOf: time.Now(), Client: sessionOf(key, r.Content)}
	if !of.There {
		c.Away, c.AsOf = true, of.Said
	}
	return c
}

// sessionOf decodes a session of the store.
func sessionOf(key string, content []byte) session.Session {
	if client, err := session.DecodeVersioned(content); err == nil {
		return client
	}
	addr, _ := netip.ParseAddr(key)
	return session.Session{Key: session.Key{Addr: addr}}
}

// cluster answers what is in the store; nil: there is none.
func (s *sharedStore) cluster() *control.Cluster {
	if s.Store == nil {
		return nil
	}
	members := func(ctx context.Context) (list []control.Member, err error) {
		all, err := s.Members(ctx)
		for _, m := range all {
			list = append(list, control.Member{Name: m.Name, Version: m.Version, Since: m.Since, Said: m.Said,
				Format: m.Format, Distrust: m.Distrust,
				Sessions: m.Sessions, Waiting: m.Waiting, BehindMS: m.BehindMS, There: m.There})
		}
		return list, err
	}
	return &control.Cluster{Members: members, Sessions: s.eachSession, Forget: s.Forget}
}

// sessionsNow counts clients that are logged in.
func (g *gateway) sessionsNow() int { return g.table.States()[session.Authenticated] }

// sessionsNow counts clients of all networks that are logged in.
func (s *several) sessionsNow() (n int) {
	for _, one := range s.all() {
		if g, _ := one.state(); g != nil {
			n += g.sessionsNow()
		}
	}
	return n
}
