package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Why a gateway is not forgotten.
var (
	ErrThere   = errors.New("is there: stop its gatewayd first; 10 seconds later it counts as away")
	ErrUnknown = errors.New("is not in the store: gatewayd cluster status lists the gateways")
)

// forget deletes what the store has of a gateway or a site, unless that is there: KEYS are "alive:GATEWAY", "gateways",
// "sets", "lead:GATEWAY", "changes", "changes:count", and the keys to delete; arguments are its name, how keys begin
// that say who is there, and its sets. It returns the gateway that is there: this one, or the one that serves at this
// site. Who follows the changes reads all records again, because the stream is deleted with its number.
var forget = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return ARGV[1] end
local serves = redis.call('HGET', KEYS[4], 'gateway')
if serves and redis.call('EXISTS', ARGV[2] .. serves) == 1 then return serves end
redis.call('HDEL', KEYS[2], ARGV[1])
for i = 3, #ARGV do redis.call('SREM', KEYS[3], ARGV[i]) end
for i = 4, #KEYS do redis.call('DEL', KEYS[i]) end
return ''
`)

// Forget deletes a gateway that is away, or a site of which none serves, and its sets of records from the store. Errors
// are ErrThere and ErrUnknown, or say why the store could not be asked. A gateway that comes back later writes its
// records again.
func (s *Store) Forget(ctx context.Context, gateway string) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if gateway == everybody { // its sets are not a gateway's
		return fmt.Errorf("%s %w", gateway, ErrUnknown)
	}
	all, err := s.asking.SMembers(ctx, s.key("sets")).Result()
	if err != nil {
		return fmt.Errorf("asking the store: %s", plain(err))
	}
	said, err := s.asking.HGet(ctx, s.key("gateways"), gateway).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("asking the store: %s", plain(err))
	}
	var sets []string
	for _, set := range all {
		if _, of := ofSet(set); of == gateway {
			sets = append(sets, set)
		}
	}
	if said == "" && len(sets) == 0 {
		return fmt.Errorf("%s %w", gateway, ErrUnknown)
	}
	m, _ := s.memberOf(gateway, said) // one before "sets" was written there
	for _, kind := range m.Kinds {
		if set := kind + ":" + gateway; !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
	}
	keys := []string{s.key("alive", gateway), s.key("gateways"), s.key("sets"), s.key("lead", gateway),
		s.key("changes"), s.key("changes", "count"), s.key("ask", gateway)}
	args := []any{gateway, s.key("alive", "")}
	for _, set := range sets {
		keys, args = append(keys, s.key(set), s.key(set, "count")), append(args, set)
	}
	switch there, err := forget.Run(ctx, s.asking, keys, args...).Text(); {
	case err != nil:
		return fmt.Errorf("asking the store: %s", plain(err))
	case there != "" && there != gateway:
		return fmt.Errorf("%s is the site of %s, which %w", gateway, there, ErrThere)
	case there != "":
		return fmt.Errorf("%s %w", gateway, ErrThere)
	}
	return nil
}
