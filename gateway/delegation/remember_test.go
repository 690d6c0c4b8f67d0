package delegation

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var ethernet = &net.Interface{Name: "wan0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}

func remembers(t *testing.T, folder string, ifi *net.Interface) (*memory, knowledge) {
	t.Helper()
	m, k, err := openMemory(folder, ifi, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	netnstest.Must(t, err)
	return m, k
}

// TestMemory: identity, server and prefixes are the same after a start, and the identity also without the file.
func TestMemory(t *testing.T) {
	folder := t.TempDir()
	m, first := remembers(t, folder, ethernet)
	if len(first.leases) != 0 || first.server != nil || !reflect.DeepEqual(first.identity.DUID, ownDUID) {
		t.Errorf("at first %+v", first)
	}
	now := time.Now()
	first.server = firstServer
	first.leases = []Prefix{
		{Prefix: prefixA, PreferredUntil: now.Add(time.Hour), ValidUntil: now.Add(2 * time.Hour)},
		{Prefix: prefixB, Number: 1, PreferredUntil: now.Add(-time.Hour), ValidUntil: now.Add(0xffffffff * time.Second)}}
	netnstest.Must(t, m.save(first))
	_, again := remembers(t, folder, ethernet)
	if !reflect.DeepEqual(again.identity, first.identity) || !reflect.DeepEqual(again.server, first.server) ||
		len(again.leases) != 2 {
		t.Fatalf("after a start %+v, before %+v", again, first)
	}
	for i, l := range again.leases {
		want := first.leases[i]
		if l.Prefix != want.Prefix || l.Number != want.Number ||
			l.ValidUntil.Sub(want.ValidUntil).Abs() > time.Second ||
			l.PreferredUntil.Sub(want.PreferredUntil).Abs() > time.Second {
			t.Errorf("after a start %+v, before %+v", l, want)
		}
	}
	if _, other := remembers(t, t.TempDir(), ethernet); !reflect.DeepEqual(other.identity, first.identity) {
		t.Errorf("without the file the identity is %+v, and was %+v", other.identity, first.identity)
	}
}

// TestIdentities: an interface without a MAC address keeps its random DUID, and VLANs with one MAC address differ.
func TestIdentities(t *testing.T) {
	folder := t.TempDir()
	point := &net.Interface{Name: "ppp0"}
	_, first := remembers(t, folder, point)
	_, again := remembers(t, folder, point)
	_, other := remembers(t, t.TempDir(), point)
	if len(first.identity.DUID) != 18 || !reflect.DeepEqual(first.identity, again.identity) ||
		reflect.DeepEqual(first.identity, other.identity) {
		t.Errorf("%x, then %x, elsewhere %x", first.identity, again.identity, other.identity)
	}
	vlan := &net.Interface{Name: "wan0.7", HardwareAddr: ethernet.HardwareAddr}
	if a, b := newIdentity(ethernet), newIdentity(vlan); a.IAID == b.IAID || a.IAID%maxWanted != 0 {
		t.Errorf("IAIDs %d and %d", a.IAID, b.IAID)
	}
}

// TestDamagedMemory: a damaged file is set aside, and the client begins anew.
func TestDamagedMemory(t *testing.T) {
	const duid = `"duid":"00030001020000000001"`
	for _, text := range []string{
		"", "{", "\x00\x00", "null", `{"version":2,` + duid + `}`, `{"version":1}`, `{"version":1,"duid":"zz"}`,
		`{"version":1,` + duid + `,"server":"0"}`, `{"version":1,` + duid + `,"server":"0003"}`,
		`{"version":1,"duid":"0003"}`, `{"version":1,"duid":"` + strings.Repeat("00", maxDUID+1) + `"}`,
		`{"version":1,` + duid + `,"prefixes":[{"prefix":"fe80::/64"}]}`,
		`{"version":1,` + duid + `,"prefixes":[{"prefix":"2001:db8::/56","number":8}]}`,
		`{"version":1,` + duid + `,"prefixes":[{"prefix":"2001:db8::/56","number":-1}]}`,
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, "delegation-wan0")
		netnstest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		_, k := remembers(t, folder, ethernet)
		if !reflect.DeepEqual(k, knowledge{identity: newIdentity(ethernet)}) {
			t.Errorf("%q: %+v", text, k)
		}
		if aside, err := os.ReadFile(path + ".damaged-1"); err != nil || string(aside) != text {
			t.Errorf("%q was set aside: %q, %v", text, aside, err)
		}
	}
}

// TestLinkState: messages of the kernel about interfaces.
func TestLinkState(t *testing.T) {
	const newLink, delLink, newAddress, running = 16, 17, 20, 0x40
	name := []byte{9, 0, 3, 0, 'w', 'a', 'n', '0', 0, 0, 0, 0}
	head := []byte{0, 0, 1, 0, 7, 0, 0, 0, running | 1, 0, 0, 0, 0, 0, 0, 0}
	for label, tt := range map[string]struct {
		kind netlink.HeaderType
		data []byte
		want interfaceState
		ok   bool
	}{
		"up":         {newLink, append(head[:16:16], name...), interfaceState{"wan0", 7, true}, true},
		"gone":       {delLink, append(head[:16:16], name...), interfaceState{"wan0", 7, false}, true},
		"an address": {newAddress, append(head[:16:16], name...), interfaceState{}, false},
		"short":      {newLink, head[:15], interfaceState{}, false},
		"no name":    {newLink, head, interfaceState{index: 7, running: true}, true},
	} {
		got, ok := linkState(netlink.Message{Header: netlink.Header{Type: tt.kind}, Data: tt.data})
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %+v, %t", label, got, ok)
		}
	}
}
