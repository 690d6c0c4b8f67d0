package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Member is what a gateway says of itself in the store.
type Member struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Since    time.Time `json:"since"`     // the daemon's start
	Said     time.Time `json:"said"`      // by its own clock
	Sessions int       `json:"sessions"`  // clients that are logged in
	Waiting  int       `json:"waiting"`   // changes that are not in the store
	BehindMS int       `json:"behind_ms"` // since when
	There    bool      `json:"there"`     // it has said so within aliveFor; the store knows
	Kinds    []string  `json:"kinds"`     // of its records
}

// beat says that a gateway is there: KEYS are "alive:GATEWAY", "gateways" and "epoch"; arguments are its instance, what
// it says, its name, aliveFor in ms, and an epoch for an empty store. It returns the epoch, or nothing where another
// instance has the name.
var beat = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return '' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
redis.call('HSET', KEYS[2], ARGV[3], ARGV[2])
redis.call('SET', KEYS[3], ARGV[5], 'NX')
return redis.call('GET', KEYS[3])
`)

// beatIfDue says that the gateway is there, if it is time to.
func (s *Store) beatIfDue(ctx context.Context) error {
	if time.Since(s.lastBeat) < beatEvery {
		return nil
	}
	return s.beat(ctx)
}

// beat says in the store that the gateway is there. Where the store has been emptied, everything is compared.
func (s *Store) beat(ctx context.Context) error {
	state := s.State()
	s.mu.Lock()
	var kinds []string
	for _, m := range s.mirrors {
		kinds = append(kinds, m.kind)
	}
	s.mu.Unlock()
	said, err := json.Marshal(Member{Kinds: kinds, Name: s.Gateway, Version: s.Version, Since: s.since, Said: time.Now(),
		Sessions: s.Sessions(), Waiting: state.Waiting, BehindMS: int(state.Behind.Milliseconds())})
	if err != nil {
		return err
	}
	epoch, err := beat.Run(ctx, s.client, []string{s.key("alive", s.Gateway), s.key("gateways"), s.key("epoch")},
		s.Instance, said, s.Gateway, aliveFor.Milliseconds(), random()).Text()
	if err != nil {
		return err
	}
	if epoch == "" {
		return fmt.Errorf("%q: %w", s.Gateway, ErrName)
	}
	s.lastBeat = time.Now()
	if epoch != s.epoch {
		s.epoch = epoch
		s.compareAll()
	}
	return nil
}

// Members asks the store who is there, and who was, by name. It takes askFor at most.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	all, err := s.asking.HGetAll(ctx, s.key("gateways")).Result()
	if err != nil {
		return nil, fmt.Errorf("asking the store: %s", plain(err))
	}
	var list []Member
	var alive []*redis.IntCmd
	pipe := s.asking.Pipeline()
	for name, said := range all {
		m := Member{}
		if !Name.MatchString(name) || json.Unmarshal([]byte(said), &m) != nil {
			continue // nothing that gatewayd wrote
		}
		m.Name = name
		list, alive = append(list, m), append(alive, pipe.Exists(ctx, s.key("alive", name)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("asking the store: %s", plain(err))
	}
	for i, a := range alive {
		list[i].There = a.Val() > 0
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return list, nil
}
