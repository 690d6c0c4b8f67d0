package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/leasefile"
)

// record is an address's entry in the file of leases.
type record struct {
	addr     netip.Addr
	client   client
	hostname string
	state    state // known, leased or declined
	end      time.Time
	at       Attachment
}

// lease returns the lease of a record.
func (r record) lease(static bool) Lease {
	l := Lease{MAC: slices.Clone(r.client.mac[:]), Addr: r.addr, Hostname: r.hostname, End: r.end, Static: static,
		Attachment: r.at}
	if r.client.id != "" {
		l.ClientID = []byte(r.client.id)
	}
	return l
}

func (b *binding) record() record {
	r := record{addr: b.addr, client: b.client, hostname: b.hostname, state: b.state, end: b.end, at: b.at}
	if r.state == reserved { // reserved addresses come from the configuration
		r.state = known
	}
	return r
}

// Versions of a record. Former versions of gatewayd leave records of the second out.
const (
	recordVersion   = 1
	attachedVersion = 2 // of clients of which it is known where they are attached
)

var errRecord = errors.New("record of a lease is damaged")

// encode returns version, state, end (Unix time in ms), MAC, length of the client identifier, client identifier,
// hostname. The address is the key. Where it is known where the client is attached, there follow after the client
// identifier the length of the circuit, circuit, the length of the remote, remote, and the router's MAC.
func (r record) encode() []byte {
	b := []byte{recordVersion, byte(r.state)}
	if r.at != (Attachment{}) {
		b[0] = attachedVersion
	}
	b = binary.BigEndian.AppendUint64(b, uint64(r.end.UnixMilli()))
	b = append(b, r.client.mac[:]...)
	b = append(b, byte(len(r.client.id)))
	b = append(b, r.client.id...)
	if r.at != (Attachment{}) {
		b = append(append(b, byte(len(r.at.Circuit))), r.at.Circuit...)
		b = append(append(b, byte(len(r.at.Remote))), r.at.Remote...)
		b = append(b, r.at.Via[:]...)
	}
	return append(b, r.hostname...)
}

// decodeRecord decodes a record that encode made.
func decodeRecord(key, value []byte) (record, error) {
	const fixed = 1 + 1 + 8 + 6 + 1
	addr, ok := netip.AddrFromSlice(key)
	if !ok || !addr.Is4() || len(value) < fixed || value[0] != recordVersion && value[0] != attachedVersion ||
		len(value) < fixed+int(value[fixed-1]) {
		return record{}, errRecord
	}
	id := fixed + int(value[fixed-1])
	r := record{
		addr:  addr,
		state: state(value[1]),
		end:   time.UnixMilli(int64(binary.BigEndian.Uint64(value[2:]))),
		client: client{
			mac: MAC(value[10:16]),
			id:  string(value[fixed:id]),
		},
	}
	rest := value[id:]
	if value[0] == attachedVersion {
		var circuit, remote []byte
		circuit, rest = counted(rest)
		if remote, rest = counted(rest); len(rest) < len(MAC{}) {
			return record{}, errRecord
		}
		r.at = Attachment{string(circuit), string(remote), MAC(rest)}
		rest = rest[len(MAC{}):]
	}
	r.hostname = cleanHostname(rest)
	if r.state != known && r.state != leased && r.state != declined {
		return record{}, errRecord
	}
	return r, nil
}

// counted returns the bytes behind their number, and what follows; nothing where they are cut off.
func counted(b []byte) (value, rest []byte) {
	if len(b) == 0 || 1+int(b[0]) > len(b) {
		return nil, nil
	}
	return b[1 : 1+int(b[0])], b[1+int(b[0]):]
}

// store keeps leases in a file.
type store struct{ *leasefile.File }

// openStore opens or creates the file. Only one process can have it open.
func openStore(path string) (*store, error) {
	f, err := leasefile.Open(path, "leases", func(key, value []byte) { decodeRecord(key, value) })
	if err != nil {
		return nil, err
	}
	return &store{f}, nil
}

// load returns all records ordered by end, and the number of records that could not be read.
func (s *store) load() (records []record, damaged int, err error) {
	err = s.Each(func(key, value []byte) {
		r, err := decodeRecord(key, value)
		if err != nil {
			damaged++
			return
		}
		r.end = s.Line.Time(r.end)
		records = append(records, r)
	})
	slices.SortFunc(records, func(a, b record) int { return a.end.Compare(b.end) })
	return records, damaged, err
}

// write makes changes durable in order, with one fsync for all.
func (s *store) write(changes []change) error {
	return s.Update(func(b *bolt.Bucket) error {
		for _, c := range changes {
			r := c.record
			r.end = s.Line.At(r.end)
			if err := b.Put(c.addr.AsSlice(), r.encode()); err != nil {
				return err
			}
		}
		return nil
	})
}

// tell calls told with the records of changes that were written.
func (s *store) tell(changes []change, told func(addr string, record []byte)) {
	for _, c := range changes {
		r := c.record
		r.end = s.Line.At(r.end)
		told(c.addr.String(), r.encode())
	}
}

// restore restores an address from its stored record. Records must come in the order of their ends. It returns false
// for a record that the configuration no longer allows.
func (t *table) restore(r record, now time.Time) bool {
	b := t.byAddr[r.addr]
	if fixed, static := t.cfg.Static[t.hardware(r.client)]; b != nil || (static && fixed != r.addr) ||
		(!static && !t.dynamic(r.addr)) {
		return false
	}
	// The clock may have been wrong when this was written, or may be wrong now: a lease never runs longer than a new one.
	// Later steps of the clock change nothing, because end has a monotonic reading.
	end := now.Add(min(r.end.Sub(now), t.cfg.Lease))
	b = t.bindingOf(r.addr)
	b.client, b.hostname, b.at = r.client, r.hostname, r.at
	switch r.state {
	case leased:
		t.byClient[r.client] = b
		b.acked = end
		t.move(b, leased, end)
	case declined:
		t.move(b, declined, now.Add(min(r.end.Sub(now), declineTime)))
	default:
		t.byClient[r.client] = b
		if b.state == blank {
			t.move(b, known, end)
		}
	}
	return true
}
