// The Store that all gateways of a cluster have together.

package voucher

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Kinds of the records in the store of the gateways: batches by name, and vouchers by ID.
const (
	batchKind   = "voucher-batches"
	voucherKind = "vouchers"
)

// Buckets that the file of a shared book has besides.
var (
	versionsBucket = []byte("versions") // "v" and ID, or "b" and batch's name → version in the store, 8 bytes big endian
	endsBucket     = []byte("ends")     // session's ID → keptEnd
)

// shared is a Store that the gateways of a store have together. Each change is made there first, and then in the file,
// which has a copy of all records, and ends of sessions that wait for the store.
type shared struct {
	*file
	log     *slog.Logger
	gateway string

	vouchers, batches *cluster.Shared
	leave             []func()

	adopted func(adopted) // is told of what came from the store
	back    chan struct{} // has an element when the file and the store are equal again

	wake, stop, ended chan struct{} // of adoptAll

	adopting sync.Mutex // held while what was told is written

	mu    sync.Mutex                // guards what follows
	told  map[string]cluster.Record // of the store, not in the file yet, by version key
	equal [2]bool                   // batches, vouchers: since the store was away they were compared
	alien map[string]bool           // batches of this gateway whose names are those of others in the store
}

var _ Store = (*shared)(nil)

// sharedBatch is the record of a batch in the store.
type sharedBatch struct {
	batch
	First ID `json:"first"`
}

// openShared opens the file at path as the copy of a store. Its vouchers of before are brought into the store.
func openShared(path string, store *cluster.Store, log *slog.Logger) (*shared, error) {
	opened, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	s := &shared{file: opened.(*file), log: log, gateway: store.Gateway, back: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
		told: map[string]cluster.Record{}, alien: map[string]bool{}}
	if err := s.db.Update(layOutShared); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the vouchers' file %s: %w", path, err), s.db.Close())
	}
	return s, nil
}

// layOutShared makes the buckets of a shared book, and gives batches of before new IDs, which no other gateway has.
func layOutShared(tx *bbolt.Tx) error {
	for _, name := range [][]byte{versionsBucket, endsBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	var former []*batch
	err := tx.Bucket(batchesBucket).ForEach(func(key, data []byte) error {
		one, err := decodeBatch(data)
		if err == nil && binary.BigEndian.Uint64(key) < sharedFrom {
			one.first = ID(binary.BigEndian.Uint64(key))
			former = append(former, one)
		}
		return err
	})
	for i, one := range former {
		if err == nil { // a millisecond for each: those of one second stay apart
			err = move(tx, one, sharedID(one.Created.Add(time.Duration(i)*time.Millisecond)))
		}
	}
	return err
}

// IDs of shared vouchers have the time of their making, ms since 1970, above so many random bits: no two gateways
// choose the same ones.
const (
	randomBits = 22
	sharedFrom = 1 << 40 // all are above
)

// sharedID is the ID of the first voucher of a batch.
func sharedID(made time.Time) ID {
	return ID(max(made.UnixMilli(), 1<<19))<<randomBits | ID(rand.Int64N(1<<randomBits-MaxCount))
}

// move gives the vouchers of a batch IDs from first on.
func move(tx *bbolt.Tx, one *batch, first ID) error {
	batches, vouchers, codes := tx.Bucket(batchesBucket), tx.Bucket(vouchersBucket), tx.Bucket(codesBucket)
	err := errors.Join(batches.Delete(keyOf(one.first)), batches.Put(keyOf(first), encode(one)))
	for i := range ID(one.Count) {
		data := slices.Clone(vouchers.Get(keyOf(one.first + i)))
		if data == nil || err != nil {
			continue
		}
		r, failed := decodeRecord(data)
		if failed != nil {
			return failed
		}
		err = errors.Join(vouchers.Delete(keyOf(one.first+i)), vouchers.Put(keyOf(first+i), data),
			codes.Put([]byte(r.Code), keyOf(first+i)))
	}
	return err
}

// share begins to keep the file and the store equal. It fails where the store has batches of the same names as those
// that the gateway brings.
func (s *shared) share(store *cluster.Store) error {
	s.batches, s.leave = shareWith(store, batchKind, batchCopy{s}, s.leave)
	s.vouchers, s.leave = shareWith(store, voucherKind, voucherCopy{s}, s.leave)
	go s.adoptAll()
	brings := map[string]ID{}
	err := s.Batches(func(first ID, data []byte) error {
		one, err := decodeBatch(data)
		if err == nil {
			brings[one.Name] = first
		}
		return err
	})
	for name, first := range brings {
		if err != nil || s.version(batchKey(name)) > 0 {
			continue
		}
		there, failed := s.batches.Get(context.Background(), name)
		if errors.Is(failed, cluster.ErrStore) {
			break // batchCopy finds it later
		}
		if other, _ := decodeShared(there.Content); failed == nil && other != nil && other.First != first {
			err = fmt.Errorf("%s: %w", name, ErrAlien)
		}
	}
	return err
}

func shareWith(store *cluster.Store, kind string, c cluster.Copy, leave []func()) (*cluster.Shared, []func()) {
	h, end := store.Share(kind, c)
	return h, append(leave, end)
}

// ErrAlien means that a gateway comes to a store with a batch whose name another batch there has.
var ErrAlien = errors.New("this gateway and the store have different batches of vouchers of this name: let the " +
	"gateway's be used up before it joins the store (store.kind = \"file\"), or move vouchers.db out of state_dir, and " +
	"its vouchers are valid no longer")

// Close implements Store.
func (s *shared) Close() error {
	for _, leave := range s.leave {
		leave()
	}
	close(s.stop)
	<-s.ended
	return s.file.Close()
}

// ready reports whether the file and the store were compared since the store was away.
func (s *shared) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.equal[0] && s.equal[1]
}

func (s *shared) setEqual(which int, to bool) {
	s.mu.Lock()
	s.equal[which] = to
	all := s.equal[0] && s.equal[1]
	s.mu.Unlock()
	if all {
		signal(s.back)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func batchKey(name string) string { return "b" + name }
func voucherKey(id ID) string     { return "v" + string(keyOf(id)) }

// version is that of a record in the store, as far as it is known; 0: it is not there.
func (s *shared) version(key string) (version uint64) {
	_ = s.db.View(func(tx *bbolt.Tx) error { version = versionIn(tx, key); return nil })
	return version
}

func versionIn(tx *bbolt.Tx, key string) uint64 {
	if v := tx.Bucket(versionsBucket).Get([]byte(key)); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// tryAgain is the error of a change of which it is not known whether the store has it.
func tryAgain(err error) error { return fmt.Errorf("%w: %w", session.ErrTryAgain, err) }

// Write implements Store. Vouchers that are new are in the store before their batch, without which nobody knows them.
// It fails with session.ErrTryAgain where the store is away; then the change may be made at any time.
func (s *shared) Write(c Change) error {
	if len(c.Batches) == 0 && len(c.Vouchers) == 0 {
		return s.file.Write(c) // ends alone
	}
	ctx := context.Background()
	lost, err := s.writeVouchers(ctx, c.Vouchers)
	if errors.Is(err, ErrChanged) {
		return err
	}
	if err != nil {
		return tryAgain(err)
	}
	for i, r := range c.Batches {
		if lost > 0 {
			break
		}
		one, err := decodeBatch(r.Is)
		if err != nil {
			return err
		}
		out, err := s.batches.Write(ctx, cluster.Change{Key: one.Name, Content: encode(sharedBatch{*one, r.ID})})
		if err != nil {
			return tryAgain(err)
		}
		if !out[0].Done {
			return errors.Join(ErrTaken, s.refresh(ctx, s.batches, batchCopy{s}, one.Name), s.takeBack(ctx, c.Vouchers))
		}
		c.Batches[i].version = out[0].Version
	}
	if lost > 0 {
		c.Batches, c.settled = nil, nil
	}
	if c.Vouchers = slices.DeleteFunc(c.Vouchers, func(r Record) bool { return r.version == 0 }); len(c.Vouchers) == 0 {
		return ErrChanged
	}
	if err := s.file.Write(c); err != nil {
		return err
	}
	if lost > 0 {
		return ErrChanged
	}
	return nil
}

// writeVouchers writes vouchers to the store, sets the versions of those that are there then, and returns how many are
// not, because others have changed them. What they are now is in the file. It fails with ErrChanged, and has written
// nothing, where the code of a new one is another's.
func (s *shared) writeVouchers(ctx context.Context, all []Record) (lost int, err error) {
	changes, fit, err := s.changesOf(all)
	if err != nil {
		return 0, err
	}
	out, err := s.vouchers.Write(ctx, changes...)
	if err != nil {
		return 0, err
	}
	for i, o := range out {
		if !o.Done && o.Version == 0 { // the store was emptied
			changes[i].Version = 0
			again, err := s.vouchers.Write(ctx, changes[i])
			if err != nil {
				return 0, err
			}
			o = again[0]
		}
		if o.Done {
			fit[i].version = o.Version
			continue
		}
		lost++
		if fit[i].Was != nil {
			err = errors.Join(err, s.refresh(ctx, s.vouchers, voucherCopy{s}, changes[i].Key))
		}
	}
	return lost + len(all) - len(fit), err
}

// changesOf returns the changes of those records that are in the file as they are to have been, and these. Content and
// version are read at one moment: the version of a later content would have the store overwrite it.
func (s *shared) changesOf(all []Record) (changes []cluster.Change, fit []*Record, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		for i := range all {
			r := &all[i]
			c := cluster.Change{Key: strconv.FormatUint(uint64(r.ID), 10), Content: r.Is}
			if r.Code != "" && tx.Bucket(codesBucket).Get([]byte(r.Code)) != nil {
				return ErrChanged
			}
			if r.Was != nil {
				if !bytes.Equal(tx.Bucket(vouchersBucket).Get(keyOf(r.ID)), r.Was) {
					continue
				}
				c.Version = versionIn(tx, voucherKey(r.ID))
			}
			changes, fit = append(changes, c), append(fit, r)
		}
		return nil
	})
	return changes, fit, err
}

// refresh brings a record of the store into the file.
func (s *shared) refresh(ctx context.Context, from *cluster.Shared, c cluster.Copy, key string) error {
	r, err := from.Get(ctx, key)
	if err != nil || r.Version == 0 {
		from.Doubt() // it is written again, if the store has lost it
		return err
	}
	c.Told(key, r)
	return s.adopt()
}

// takeBack deletes new vouchers whose batch is not in the store.
func (s *shared) takeBack(ctx context.Context, all []Record) error {
	var changes []cluster.Change
	for _, r := range all {
		changes = append(changes, cluster.Change{Key: strconv.FormatUint(uint64(r.ID), 10), Version: r.version})
	}
	_, err := s.vouchers.Write(ctx, changes...)
	return err
}

// decodeShared reads the record of a batch in the store.
func decodeShared(content []byte) (*sharedBatch, error) {
	one := &sharedBatch{}
	if err := json.Unmarshal(content, one); err != nil {
		return nil, err
	}
	if one.First < sharedFrom {
		return nil, fmt.Errorf("its first voucher is number %d", one.First)
	}
	one.first = one.First
	_, err := decodeBatch(encode(one.batch))
	return one, err
}
