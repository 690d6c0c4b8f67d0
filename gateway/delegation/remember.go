package delegation

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// memory is the file in which the client keeps what must outlive it: who it is to servers, and its prefixes.
type memory struct {
	path string
	line *timeline.Line // of the file's times
}

// record is the file's contents, as JSON.
type record struct {
	Version  int          `json:"version"`
	DUID     string       `json:"duid"` // hexadecimal
	IAID     uint32       `json:"iaid"`
	Server   string       `json:"server,omitempty"` // hexadecimal
	Prefixes []remembered `json:"prefixes,omitempty"`
}

// remembered is a Prefix with times of the folder's line, nanoseconds since 1970.
type remembered struct {
	Prefix         netip.Prefix `json:"prefix"`
	Number         int          `json:"number"`
	PreferredUntil int64        `json:"preferred_until"`
	ValidUntil     int64        `json:"valid_until"`
}

// knowledge is what the file says, with times of the clock.
type knowledge struct {
	identity identity
	server   []byte // nil: none has delegated
	leases   []Prefix
}

// openMemory returns the memory of an interface in a folder, and what it has. Without a file, or where it is damaged,
// there is a new identity; log says so of a damaged one.
func openMemory(folder string, ifi *net.Interface, log *slog.Logger) (*memory, knowledge, error) {
	line, err := timeline.Open(folder)
	if err != nil {
		return nil, knowledge{}, err
	}
	m := &memory{path: filepath.Join(folder, "delegation-"+ifi.Name), line: line}
	text, err := os.ReadFile(m.path)
	if err == nil {
		k, wrong := m.decode(text)
		if wrong == nil {
			return m, k, nil
		}
		aside, err := statefile.SetAside(m.path)
		if err != nil {
			return nil, knowledge{}, err
		}
		log.Warn("the file of delegated prefixes is damaged: servers may give other prefixes", "err", wrong, "now", aside)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, knowledge{}, err
	}
	k := knowledge{identity: newIdentity(ifi)}
	return m, k, m.save(k)
}

// decode returns what the file's text says. Prefixes that are not valid are left out by the machine.
func (m *memory) decode(text []byte) (k knowledge, err error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return k, fmt.Errorf("%s: %w", m.path, err)
	}
	duid, err := hex.DecodeString(r.DUID)
	server, serverErr := hex.DecodeString(r.Server)
	if err = errors.Join(err, serverErr); err != nil || r.Version != 1 || !isDUID(duid) ||
		len(server) > 0 && !isDUID(server) {
		return k, fmt.Errorf("%s: version %d, DUID %q, server %q: %v", m.path, r.Version, r.DUID, r.Server, err)
	}
	k.identity = identity{DUID: duid, IAID: r.IAID}
	if len(server) > 0 {
		k.server = server
	}
	for _, p := range r.Prefixes {
		if err := checkUsable(p.Prefix); err != nil || p.Number < 0 || p.Number >= maxWanted {
			return knowledge{}, fmt.Errorf("%s: number %d: %v", m.path, p.Number, err)
		}
		k.leases = append(k.leases, Prefix{Prefix: p.Prefix, Number: p.Number,
			PreferredUntil: m.line.Time(time.Unix(0, p.PreferredUntil)),
			ValidUntil:     m.line.Time(time.Unix(0, p.ValidUntil))})
	}
	return k, nil
}

// save replaces the file.
func (m *memory) save(k knowledge) error {
	r := record{Version: 1, DUID: hex.EncodeToString(k.identity.DUID), IAID: k.identity.IAID,
		Server: hex.EncodeToString(k.server)}
	for _, p := range k.leases {
		r.Prefixes = append(r.Prefixes, remembered{Prefix: p.Prefix, Number: p.Number,
			PreferredUntil: m.line.At(p.PreferredUntil).UnixNano(), ValidUntil: m.line.At(p.ValidUntil).UnixNano()})
	}
	err := statefile.Replace(m.path, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
	return errors.Join(err, m.line.Save())
}

// newIdentity makes a DUID of an interface's MAC address (DUID-LL, RFC 8415 11.4): when the file is lost, it is the
// same again, and so are the prefixes. An interface without one, such as that of PPPoE, has a random one (RFC 6355).
// IAIDs are made of the interface's name: two VLANs may have one MAC address.
func newIdentity(ifi *net.Interface) identity {
	name := fnv.New32a()
	name.Write([]byte(ifi.Name))
	id := identity{IAID: name.Sum32() &^ (maxWanted - 1)} // those of all wanted prefixes follow it
	if len(ifi.HardwareAddr) == 6 {
		id.DUID = (&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: ifi.HardwareAddr}).ToBytes()
		return id
	}
	var random dhcpv6.DUIDUUID
	rand.Read(random.UUID[:]) // never fails
	id.DUID = random.ToBytes()
	return id
}
