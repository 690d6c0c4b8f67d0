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
	Format   int       `json:"format"`    // the newest one of sessions' records that it reads; 0: it does not say
	Since    time.Time `json:"since"`     // the daemon's start
	Said     time.Time `json:"said"`      // by its own clock
	Sessions int       `json:"sessions"`  // clients that are logged in
	Waiting  int       `json:"waiting"`   // changes that are not in the store
	BehindMS int       `json:"behind_ms"` // since when
	Distrust string    `json:"-"`         // why nothing of it is used: its signature; "": it is
	There    bool      `json:"there"`     // it has said so within aliveFor; the store knows
	Kinds    []string  `json:"kinds"`     // of its records
	// Clocks say how far the store's clock is ahead of the line on which times in its records of a kind are, in µs.
	Clocks map[string]int64 `json:"clocks_us,omitempty"`
}

// beat says that a gateway is there: KEYS are "alive:GATEWAY", "gateways" and "epoch"; arguments are its instance, what
// it says, its name, aliveFor in ms, and an epoch for an empty store. It returns the epoch, the store's time, and what
// all gateways say; or nothing where another instance has the name.
var beat = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return {} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
redis.call('HSET', KEYS[2], ARGV[3], ARGV[2])
redis.call('SET', KEYS[3], ARGV[5], 'NX')
local time = redis.call('TIME')
return {redis.call('GET', KEYS[3]), time[1], time[2], redis.call('HGETALL', KEYS[2])}
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
	first := s.lastBeat.IsZero()
	said, err := json.Marshal(s.myself())
	if err != nil {
		return err
	}
	before := time.Now()
	answer, err := beat.Run(ctx, s.client, []string{s.key("alive", s.Gateway), s.key("gateways"), s.key("epoch")},
		s.Instance, s.seal(memberPlace(s.Gateway), said), s.Gateway, aliveFor.Milliseconds(), random()).Slice()
	if err != nil {
		return err
	}
	if len(answer) != 4 {
		return fmt.Errorf("%q: %w", s.Gateway, ErrName)
	}
	s.noteClocks(before, answer)
	s.lastBeat = time.Now()
	if first {
		s.lastBeat = s.lastBeat.Add(-beatEvery) // say at once how the store's clock is
	}
	if epoch, _ := answer[0].(string); epoch != s.epoch {
		s.epoch = epoch
		s.compareAll()
	}
	return nil
}

// myself is what the gateway says of itself.
func (s *Store) myself() Member {
	state := s.State()
	m := Member{Name: s.Gateway, Version: s.Version, Format: s.Format, Since: s.since, Said: time.Now(),
		Sessions: s.Sessions(), Waiting: state.Waiting, BehindMS: int(state.Behind.Milliseconds()),
		Clocks: map[string]int64{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, mirror := range s.mirrors {
		m.Kinds = append(m.Kinds, mirror.kind)
		if !s.clock.at.IsZero() {
			m.Clocks[mirror.kind] = s.steadily(mirror.kind)
		}
	}
	return m
}

// noteClocks keeps the store's time, and what other gateways say of theirs.
func (s *Store) noteClocks(before time.Time, answer []any) {
	said, _ := answer[3].([]any)
	others := map[string]Member{}
	for i := 0; i+1 < len(said); i += 2 {
		name, _ := said[i].(string)
		text, _ := said[i+1].(string)
		if m, fine := s.memberOf(name, text); fine && m.Distrust == "" {
			others[name] = m
		}
	}
	now, fine := parseTime(answer[1], answer[2])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = others
	if fine {
		s.clock = reading{before.Add(time.Since(before) / 2), now}
	}
}

// memberOf reads what a gateway says of itself.
func (s *Store) memberOf(name, text string) (m Member, fine bool) {
	if !Name.MatchString(name) || json.Unmarshal(unsealed([]byte(text)), &m) != nil {
		return m, false // nothing that gatewayd wrote
	}
	m.Name = name
	if _, err := s.open(memberPlace(name), []byte(text)); err != nil {
		m.Distrust, m.Kinds, m.Clocks = err.Error(), nil, nil
		s.refuse("what a gateway says of itself", name, "", err)
	}
	return m, true
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
		m, fine := s.memberOf(name, said)
		if !fine {
			continue
		}
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
