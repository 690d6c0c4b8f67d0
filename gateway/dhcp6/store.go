package dhcp6

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/leasefile"
)

// Record is what an identity association of a client has.
type Record struct {
	Kind    Kind
	MAC     MAC
	Session uint16 // PPPoE's; 0: none
	IAID    uint32
	DUID    string // bytes
	Via     netip.Addr
	Items   []Item // empty: the record is removed
}

// Item is an address, as /128, or a prefix of a Record.
type Item struct {
	Prefix netip.Prefix
	End    time.Time
	Wished bool // leased by a Wish for it, or for its network
}

// Store keeps the leases over restarts. Its methods are called by one goroutine at a time.
type Store interface {
	// Secret returns the same 32 random bytes at each call. Clients' addresses come from it.
	Secret() ([32]byte, error)
	// Load returns all records, and the number of those that could not be read.
	Load() (records []Record, damaged int, err error)
	// Write replaces records. They are durable when it returns.
	Write([]Record) error
}

// File is a Store in a file of its own.
type File struct{ *leasefile.File }

var _ Store = (*File)(nil)

var (
	secretBucket = []byte("secret6")
	secretKey    = []byte("addresses")
)

const (
	recordVersion = 1
	keyLen        = 1 + 6 + 4  // before the DUID
	sessionLen    = 2          // between them, in records with the mark inSession
	inSession     = 0x80       // beside the kind: of a PPPoE session
	itemLen       = 16 + 1 + 8 // address, length, end (Unix time in ms)
	wished        = 1 << 63    // beside the end
	valueLen      = 1 + 16     // version and link-local address, before the items
	maxStored     = 128        // items of a record: a MAC has no more registered addresses
)

var errRecord = errors.New("record of a lease is damaged")

// key returns kind, MAC, IAID, DUID, or kind and inSession, MAC, IAID, session, DUID.
func (r Record) key() []byte {
	b := append([]byte{byte(r.Kind)}, r.MAC[:]...)
	b = binary.BigEndian.AppendUint32(b, r.IAID)
	if r.Session != 0 {
		b[0] |= inSession
		b = binary.BigEndian.AppendUint16(b, r.Session)
	}
	return append(b, r.DUID...)
}

// encode returns version, link-local address (:: for none), items.
func (r Record) encode() []byte {
	via := netip.IPv6Unspecified().As16()
	if r.Via.IsValid() {
		via = r.Via.As16()
	}
	b := append([]byte{recordVersion}, via[:]...)
	for _, one := range r.Items {
		b = append(b, one.Prefix.Addr().AsSlice()...)
		b = append(b, byte(one.Prefix.Bits()))
		end := uint64(max(0, one.End.UnixMilli()))
		if one.Wished {
			end |= wished
		}
		b = binary.BigEndian.AppendUint64(b, end)
	}
	return b
}

// decodeRecord decodes what key and encode made.
func decodeRecord(key, value []byte) (Record, error) {
	head := keyLen
	if len(key) > 0 && key[0]&inSession != 0 {
		head += sessionLen
	}
	if len(key) < head+minDUID || len(key) > head+maxDUID || len(value) < valueLen+itemLen ||
		value[0] != recordVersion || (len(value)-valueLen)%itemLen != 0 || len(value) > valueLen+maxStored*itemLen {
		return Record{}, errRecord
	}
	r := Record{
		Kind: Kind(key[0] &^ inSession), MAC: MAC(key[1:7]), IAID: binary.BigEndian.Uint32(key[7:]),
		DUID: string(key[head:])}
	if head > keyLen {
		if r.Session = binary.BigEndian.Uint16(key[keyLen:]); r.Session == 0 {
			return Record{}, errRecord
		}
	}
	if via := netip.AddrFrom16([16]byte(value[1:])); !via.IsUnspecified() {
		r.Via = via
	}
	for b := value[valueLen:]; len(b) > 0; b = b[itemLen:] {
		prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte(b)), int(b[16]))
		if !prefix.IsValid() || prefix != prefix.Masked() || r.Kind != Delegated && prefix.Bits() != 128 {
			return Record{}, errRecord
		}
		end := binary.BigEndian.Uint64(b[17:])
		r.Items = append(r.Items, Item{prefix, time.UnixMilli(int64(end &^ wished)), end&wished != 0})
	}
	if r.Kind < Address || r.Kind > Registered {
		return Record{}, errRecord
	}
	return r, nil
}

// OpenFile opens or creates a file of leases. Only one process can have it open.
func OpenFile(path string) (*File, error) {
	f, err := leasefile.Open(path, "leases6", func(key, value []byte) { decodeRecord(key, value) })
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// Secret implements Store: the bytes are made at the first call.
func (f *File) Secret() (secret [32]byte, err error) {
	err = f.DB.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(secretBucket)
		if err != nil {
			return err
		}
		if kept := b.Get(secretKey); len(kept) == len(secret) {
			copy(secret[:], kept)
			return nil
		}
		rand.Read(secret[:]) // never fails
		return b.Put(secretKey, secret[:])
	})
	return secret, err
}

// Load implements Store.
func (f *File) Load() (records []Record, damaged int, err error) {
	err = f.Each(func(key, value []byte) {
		r, err := decodeRecord(key, value)
		if err != nil {
			damaged++
			return
		}
		for i := range r.Items {
			r.Items[i].End = f.Line.Time(r.Items[i].End)
		}
		records = append(records, r)
	})
	return records, damaged, err
}

// Write implements Store, with one fsync for all.
func (f *File) Write(records []Record) error {
	return f.Update(func(b *bolt.Bucket) error {
		for _, r := range records {
			if len(r.Items) == 0 {
				if err := b.Delete(r.key()); err != nil {
					return err
				}
				continue
			}
			r.Items = slices.Clone(r.Items)
			for i := range r.Items {
				r.Items[i].End = f.Line.At(r.Items[i].End)
			}
			if err := b.Put(r.key(), r.encode()); err != nil {
				return err
			}
		}
		return nil
	})
}
