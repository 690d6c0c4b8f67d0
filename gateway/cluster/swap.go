package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Change is the new content of a record.
type Change struct {
	Key     string
	Content []byte // nil: the record is deleted
	Version uint64 // of the record that it replaces, as the gateway knows it; 0: there is none
}

// Outcome is what became of a Change.
type Outcome struct {
	Done    bool   // the record is as the change says
	Version uint64 // of the record that is there now; 0: there is none
	Owner   string // whose it is; "": there is none
}

// swap carries out changes of the hash KEYS[1], each only if the record has the version that the change is about. New
// versions come from KEYS[2], and are above a floor. Arguments are the owner, KIND:GATEWAY, how many changes are kept,
// the floor, and four of each change: key, version, "put" or "delete", content. It returns three for each change. A
// record that is already as a change says is no other version: the answer to the first try was lost. A record whose
// version has more than versionDigits is replaced as one that is not readable.
//
// The stream KEYS[3] has each change, numbered without gaps by KEYS[4], and the set KEYS[5] has KIND:GATEWAY. Numbers
// begin with the store's time in microseconds, so that an emptied store has later ones. A server that is full takes
// deletions, but no entry of a stream: then the stream is deleted with its number, and who follows it reads all.
//
// A script takes one round trip and loses no race, whereas WATCH takes two and fails where others write.
var swap = redis.NewScript(`
local owner, set, most, floor, out = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), {}
if ARGV[5] ~= '0' and redis.call('HGET', KEYS[6], 'term') ~= ARGV[5] then return {} end
local function tell(key, version, record)
	local n, told = redis.pcall('INCR', KEYS[4]), nil
	if n == 1 then
		local now = redis.call('TIME')
		n = tonumber(now[1]) * 1000000 + tonumber(now[2])
		redis.call('SET', KEYS[4], string.format('%.0f', n))
	end
	if type(n) == 'number' then
		told = redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', most, string.format('%.0f-1', n), 'set', set, 'key', key,
			'was', version, 'is', record)
	end
	if type(told) ~= 'string' then redis.call('DEL', KEYS[3], KEYS[4]) end
end
for i = 6, #ARGV, 4 do
	local key, known, kind, content = ARGV[i], ARGV[i+1], ARGV[i+2], ARGV[i+3]
	local record = redis.call('HGET', KEYS[1], key)
	local version, has, held = '0', '', nil
	if record then
		version, has, held = string.match(record, '^(%d+) (%S+) (.*)$')
		if version and #version > 15 then version, has, held = nil, nil, nil end
		version, has = version or '0', has or ''
	end
	local done = 0
	if kind == 'delete' then
		if not record then
			done = 1
		elseif version == known then
			redis.call('HDEL', KEYS[1], key)
			tell(key, version, '')
			done, version, has = 1, '0', ''
		end
	elseif held == content and has == owner then
		done = 1
	elseif version == known then
		local n = redis.call('INCR', KEYS[2])
		if n <= floor then
			n = floor + 1
			redis.call('SET', KEYS[2], string.format('%.0f', n))
		end
		version = string.format('%.0f', n)
		record = version .. ' ' .. owner .. ' ' .. content
		redis.call('SADD', KEYS[5], set)
		redis.call('HSET', KEYS[1], key, record)
		tell(key, version, record)
		done, has = 1, owner
	end
	out[#out+1], out[#out+2], out[#out+3] = done, version, has
end
return out
`)

// Swap carries out changes of records of a kind that a gateway has, each by itself, and returns an outcome for each.
// They are all carried out at the same time. After an error some may have been: Swap may be called again.
func (s *Store) Swap(ctx context.Context, kind, gateway string, changes []Change) ([]Outcome, error) {
	return s.swap(ctx, s.asking, kind, gateway, 0, fence{}, changes)
}

// swap is Swap by a client, in a term of a site. New versions are above floor.
func (s *Store) swap(ctx context.Context, c *redis.Client, kind, gateway string, floor uint64, in fence,
	changes []Change,
) ([]Outcome, error) {
	args := make([]any, 0, 5+4*len(changes))
	args = append(args, s.Gateway, kind+":"+gateway, changesKept, text(floor), text(in.term))
	for _, c := range changes {
		what, sealed := "delete", []byte(nil)
		if c.Content != nil {
			what, sealed = "put", s.seal(recordPlace(kind, gateway, c.Key, s.Gateway), c.Content)
		}
		args = append(args, c.Key, strconv.FormatUint(c.Version, 10), what, sealed)
	}
	set, lead := s.key(kind, gateway), s.key("lead")
	if in.site != nil {
		lead = in.site.key()
	}
	answer, err := swap.Run(ctx, c, []string{set, set + ":count", s.key("changes"), s.key("changes", "count"),
		s.key("sets"), lead}, args...).Slice()
	if err != nil {
		return nil, err
	}
	if in.term > 0 && len(answer) == 0 && len(changes) > 0 {
		return nil, errFenced
	}
	if len(answer) != 3*len(changes) {
		return nil, fmt.Errorf("the store answers %d values for %d changes", len(answer), len(changes))
	}
	out := make([]Outcome, len(changes))
	for i := range out {
		done, _ := answer[3*i].(int64)
		version, _ := answer[3*i+1].(string)
		out[i].Owner, _ = answer[3*i+2].(string)
		out[i].Done = done == 1
		if out[i].Version, err = strconv.ParseUint(version, 10, 64); err != nil {
			return nil, fmt.Errorf("the store answers the version %.40q", version)
		}
	}
	return out, nil
}

// versionDigits is how long versions are at most, so that a script may calculate with them. A longer one is not ours.
const versionDigits = 15

// Record is a record of the store.
type Record struct {
	Version uint64
	Owner   string
	Content []byte
}

// Get returns a record; found is false where there is none.
func (s *Store) Get(ctx context.Context, kind, gateway, key string) (r Record, found bool, err error) {
	text, err := s.asking.HGet(ctx, s.key(kind, gateway), key).Result()
	if errors.Is(err, redis.Nil) {
		return r, false, nil
	}
	return s.recordOf(kind, gateway, key, text), err == nil, err
}

// readMost is how many records Each asks for at once.
const readMost = 500

// Each calls visit with all records of a kind that a gateway has, in no order, some perhaps twice. A record that others
// change meanwhile may be left out. One that is not readable has no version and no owner.
func (s *Store) Each(ctx context.Context, kind, gateway string, visit func(key string, r Record) error) error {
	return s.each(ctx, s.asking, kind, gateway, visit)
}

// each is Each by a client.
func (s *Store) each(ctx context.Context, c *redis.Client, kind, gateway string,
	visit func(string, Record) error,
) error {
	for cursor := uint64(0); ; {
		page, next, err := c.HScan(ctx, s.key(kind, gateway), cursor, "", readMost).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if err := visit(page[i], s.recordOf(kind, gateway, page[i], page[i+1])); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// recordOf reads a record of the store. One that is not readable has no version and no owner.
func (s *Store) recordOf(kind, gateway, key, text string) Record {
	version, rest, _ := strings.Cut(text, " ")
	owner, sealed, complete := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || !complete || len(version) > versionDigits {
		return Record{Content: []byte(text)}
	}
	content, err := s.open(recordPlace(kind, gateway, key, owner), []byte(sealed))
	if err != nil {
		s.refuse("record "+kind, gateway, key, err)
		return Record{}
	}
	return Record{n, owner, content}
}
