// Package cluster keeps copies of a gateway's records in a store that several gateways share: a server of Redis or
// Valkey. The gateway's own files stay what it works with, so nothing of it waits for the store.
//
//	table ── writes ──▶ file ── Mirror.Changed ──▶ Store.Run ── compare-and-set ──▶ server
//	                      └── what Mirror compares with the server after every new connection
//
// Keys, all below a prefix such as "gateweigh:", where GATEWAY is a gateway's name:
//
//	KIND:GATEWAY        hash: a record's key → "VERSION OWNER CONTENT", in which CONTENT is of the kind
//	KIND:GATEWAY:count  the last version of these records
//	KIND:all            hash: as KIND:GATEWAY, of records that all gateways have together (Shared)
//	gateways            hash: GATEWAY → "INSTANCE {…}", the last Member that it said it is
//	alive:GATEWAY       its INSTANCE, for as long as it counts as there (aliveFor)
//	epoch               a random text. Where it is another one, the store has been emptied
//	sets                set: each KIND:GATEWAY
//	changes             stream: the last changes of all records, numbered without gaps
//	changes:count       the last one's number
//	ask:GATEWAY         stream: questions and answers to a gateway (Ask, Answer)
//	lead:SITE           hash: which gateway of a site serves (Site); KIND:SITE is the set of the site
//
// Other gateways' records come the other way:
//
//	server ── changes ──▶ Store.Run ── Put, Gone ──▶ Follower
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// Options say where the store is, and who uses it.
type Options struct {
	// Addresses are those of the Sentinels if Master is set, and otherwise that of the server: host:port.
	Addresses []string
	Master    string      // the name by which Sentinels know the server
	User      string      // "": the server's default one
	Password  string      // of the user; "": none
	Sentinels Login       // at Sentinels, which have users of their own
	Key       []byte      // a secret of all gateways of the store, which sign with it; nil: nothing is signed
	TLS       *tls.Config // nil: connections are not encrypted
	Prefix    string      // of all keys
	Gateway   string      // this gateway's name; see Name
	Instance  string      // tells it from another gateway with the same name; without blanks
	Version   string      // of the program
	Format    int         // the newest one of sessions' records that it reads
	// Newer reports whether only a newer version reads a record: it stays in the store. Nil: none.
	Newer    func(kind string, content []byte) bool
	Log      *slog.Logger
	Sessions func() int // how many clients are logged in
	// Renew, unless it is nil, is asked at each new connection for what replaces Password and TLS. While it fails there is
	// no connection.
	Renew func() (Secrets, error)
}

// Secrets are what files say that may be changed while the gateway runs.
type Secrets struct {
	Password string
	TLS      *tls.Config
}

// Login is a user's name and password; "": the default user, and no password.
type Login struct{ User, Password string }

// Name is what a gateway may be called in the store.
var Name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const (
	// patience is how long an answer may take. Only Run waits so long: a slow server is better than none.
	patience = 5 * time.Second
	// askFor is how long others wait.
	askFor = 2 * time.Second
	// aliveFor is how long a gateway counts as there that has not said so again.
	aliveFor = 10 * time.Second
	// beatEvery is how often it says so.
	beatEvery = 2 * time.Second
	// soonest and latest are how long Run waits before it tries again.
	soonest, latest = 250 * time.Millisecond, 4 * time.Second
)

// ErrName means that another gateway uses the name.
var ErrName = errors.New("another gateway has the same name: give each its own store.name")

// Store is the connection with the server. Its methods may be called from several goroutines.
type Store struct {
	Options
	since  time.Time
	client *redis.Client // Run's, with one connection
	asking *redis.Client // others'
	wake   chan struct{}

	feeding  *redis.Client // the feed's
	followed chan struct{} // there is a new follower
	renewed  atomic.Bool   // the feed has a new connection, perhaps with another server
	post     post

	signs     sealer
	forged    budget.OncePerMinute // to compare records because of one that is not the gateway's
	connected atomic.Bool          // since it was looked at: there is a new connection, perhaps with another server

	mu      sync.Mutex // guards what follows
	mirrors []*Mirror
	shared  []*Shared
	state   State
	leaving *Site // whose lead this gateway leaves at Close; nil: none

	followers []*following
	clock     reading
	lines     map[string]func(time.Time) time.Time // by kind
	others    map[string]Member                    // what gateways said of themselves at the last beat, this one too

	// Run's.
	epoch    string
	lastBeat time.Time
}

// State is how a gateway gets on with the store.
type State struct {
	Up      bool
	Why     string    // it is not up
	Since   time.Time // of Up; zero: the store was not reached yet
	Waiting int       // changes that are not in the store, at least
	Behind  time.Duration
	Foreign int // records that another gateway has taken
	Refused int // records and messages that were not used since the start, because of their signature
	Newer   int // records of this gateway that only a newer version reads
}

// silence keeps go-redis from writing to standard error: hundreds of lines while a server is away.
var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Open returns a store. It connects in Run.
func Open(o Options) *Store {
	silence()
	s := &Store{Options: o, since: time.Now(), wake: make(chan struct{}, 1), followed: make(chan struct{}, 1),
		lines: map[string]func(time.Time) time.Time{}}
	s.feeding = s.connect(1, askFor, func(context.Context, *redis.Conn) error { s.renewed.Store(true); return nil })
	s.post.client = s.connect(postConnections, askFor, nil)
	s.post.answers, s.post.waiting = map[string]Answerer{}, map[string]chan<- answered{}
	s.client = s.connect(1, patience, func(context.Context, *redis.Conn) error { s.connected.Store(true); return nil })
	s.asking = s.connect(4, askFor, nil)
	s.signs.use(o.Key)
	s.state.Why = "it was not reached yet"
	return s
}

func (s *Store) key(parts ...string) string { return s.Prefix + strings.Join(parts, ":") }

// State returns how the gateway gets on with the store. It asks nobody.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	s.signs.mu.Lock()
	out.Refused = s.signs.refused
	s.signs.mu.Unlock()
	for _, m := range s.mirrors {
		n, since := m.waiting()
		foreign, newer := m.kept()
		out.Waiting += n
		out.Foreign += foreign
		out.Newer += newer
		if !since.IsZero() {
			out.Behind = max(out.Behind, time.Since(since))
		}
	}
	return out
}

// Run writes changes to the store, tells followers, and answers, until ctx ends. While it cannot, it tries again.
func (s *Store) Run(ctx context.Context) error {
	var others sync.WaitGroup
	others.Go(func() { s.follow(ctx) })
	others.Go(func() { s.readPost(ctx) })
	defer others.Wait()
	// The client does not give up an answer that it waits for when the context ends.
	client := s.client // Close has another one
	defer context.AfterFunc(ctx, func() { client.Close() })()
	pause := soonest
	for ctx.Err() == nil {
		err := s.round(ctx)
		if ctx.Err() != nil {
			break
		}
		s.note(err)
		if err != nil {
			s.lost()
		}
		wait := time.Until(s.lastBeat.Add(beatEvery))
		wake := s.wake
		if err != nil {
			wait, wake, pause = pause, nil, min(2*pause, latest)
		} else {
			pause = soonest
		}
		select {
		case <-time.After(wait):
		case <-wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// Close writes what is left, within a bounded time, and ends the connections.
func (s *Store) Close() error {
	_ = s.client.Close() // Run has closed these, if it ran
	_ = s.feeding.Close()
	_ = s.post.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	s.mu.Lock()
	up := s.state.Up
	s.mu.Unlock()
	if up {
		s.client = s.asking
		if err := s.leave(ctx); err != nil {
			s.Log.Warn("the store is not up to date: it will be when gatewayd runs again", "err", plain(err))
		}
	}
	return s.asking.Close()
}

// leave writes what is left, and says that the gateway is away.
func (s *Store) leave(ctx context.Context) error {
	if err := s.round(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	site := s.leaving
	s.mu.Unlock()
	if site != nil {
		_ = site.Leave(ctx) // otherwise its lease ends by itself
	}
	return s.client.Del(ctx, s.key("alive", s.Gateway)).Err()
}

// round says that the gateway is there, if it is time to, and writes what has changed.
func (s *Store) round(ctx context.Context) error {
	if err := s.beatIfDue(ctx); err != nil {
		return err
	}
	if s.connected.Swap(false) {
		s.compareAll()
	}
	s.mu.Lock()
	all, shared := slices.Clone(s.mirrors), slices.Clone(s.shared)
	s.mu.Unlock()
	for _, h := range shared {
		if err := h.send(ctx); err != nil {
			return err
		}
	}
	for _, m := range all {
		if err := m.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareAll has all mirrors compare their records with those in the store.
func (s *Store) compareAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mirrors {
		m.Compare()
	}
	for _, h := range s.shared {
		h.Doubt()
	}
}

// signal has Run look for what is to be done.
func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lost tells copies that the store is away.
func (s *Store) lost() {
	s.mu.Lock()
	shared := slices.Clone(s.shared)
	s.mu.Unlock()
	for _, h := range shared {
		h.setSynced(false)
	}
}

// note keeps and logs whether the store is up.
func (s *Store) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.state
	s.state.Up, s.state.Why = err == nil, ""
	if err != nil {
		s.state.Why = plain(err)
	}
	if s.state.Up == was.Up && !was.Since.IsZero() {
		return
	}
	s.state.Since = time.Now()
	if err != nil {
		s.Log.Warn("the store is away: the gateway goes on with its own files, and writes to the store when it is back",
			"err", s.state.Why)
	} else {
		s.Log.Info("the store is there", "name", s.Gateway)
	}
}

// plain says an error of the client in a few words, with what to do where that is known.
func plain(err error) string {
	text := err.Error()
	if _, ofSentinels, is := strings.Cut(text, "all sentinels specified in configuration are unreachable: "); is {
		return plainOfSentinels(ofSentinels)
	}
	for begin, remedy := range map[string]string{
		"OOM":       "the server's memory is full: give it more (maxmemory), or delete what others keep there",
		"NOAUTH":    "the server asks for a password: set store.password_file",
		"WRONGPASS": "the server refuses store.user and its password",
		"NOPERM":    "store.user may not do what gatewayd needs: see docs/cluster.md",
		"READONLY":  "the server is a replica: name its master, or Sentinels and store.sentinel_master",
		"MISCONF":   "the server cannot write to its disk",
		"LOADING":   "the server reads its file",
	} {
		if strings.HasPrefix(text, begin) {
			return fmt.Sprintf("%s (%s)", remedy, text)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return text
}

// plainOfSentinels is plain for why no Sentinel says where the server is: an error of each, one a line.
func plainOfSentinels(errs string) string {
	first, _, _ := strings.Cut(errs, "\n")
	for begin, remedy := range map[string]string{
		"NOAUTH":    "the Sentinels ask for a password: set store.sentinel_password_file",
		"WRONGPASS": "the Sentinels refuse store.sentinel_user and its password",
		"NOPERM":    "store.sentinel_user may not ask the Sentinels",
		"redis: nil": "the Sentinels know no server of this name: set store.sentinel_master to what \"sentinel monitor\" " +
			"calls it",
	} {
		if strings.HasPrefix(first, begin) {
			return fmt.Sprintf("%s (%s)", remedy, first)
		}
	}
	return "no Sentinel answers: " + first
}

// random returns a text that nobody else has.
func random() string { return rand.Text() }
