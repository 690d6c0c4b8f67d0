package session_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestPagesAreWhole: pages of any size have each client once, in order, while clients come and go, and a page looks at
// no more clients than it has.
func TestPagesAreWhole(t *testing.T) {
	table, err := session.Open(filepath.Join(t.TempDir(), "s.db"), &countingPath{}, discardLog)
	netnstest.Must(t, err)
	defer table.Close()
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	lease := func(i int) session.Key {
		key := session.Key{MAC: [6]byte{2, 0, 0, 0, byte(i >> 8), byte(i)}, Addr: addr(i)}
		netnstest.Must(t, table.Lease(key, fmt.Sprint("host", i), time.Now().Add(time.Hour)))
		return key
	}
	const clients = 1500
	for _, i := range rand.Perm(clients) {
		lease(i + 1)
	}
	for i := 1; i <= clients; i += 3 {
		netnstest.Must(t, table.Forget(lease(i)))
	}
	var want []netip.Addr
	for i := 1; i <= clients; i++ {
		if i%3 != 1 {
			want = append(want, addr(i))
		}
	}
	for _, most := range []int{1, 7, 255, 256, 257, 999, 5000} {
		var got []netip.Addr
		for from := session.Position(0); ; {
			p := table.PageOf(from, most, clients, nil)
			if p.Visited > most || len(p.Sessions) > most {
				t.Fatalf("a page of %d has %d clients and has looked at %d", most, len(p.Sessions), p.Visited)
			}
			for _, s := range p.Sessions {
				got = append(got, s.Addr)
			}
			if from = p.Next; from == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d clients, want %d", most, len(got), len(want))
		}
	}
	// a search that finds nothing ends where it was told to
	p := table.PageOf(0, 10, 600, func(*session.Brief) bool { return false })
	if p.Visited != 600 || p.Next == 0 || len(p.Sessions) > 0 {
		t.Errorf("a search for nothing: %+v", p)
	}
}
