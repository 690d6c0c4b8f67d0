package gateway

import (
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// anyClient is a data path that has whatever client it is to have.
type anyClient struct{ datapath.Datapath }

func (anyClient) Set(datapath.Client) error { return nil }
func (anyClient) Counters(datapath.ID) (datapath.Counters, error) {
	return datapath.Counters{Epoch: 1}, nil
}

// TestConnectionsOfFurtherAddresses: at the start of a daemon connections of all addresses of those who are logged in
// go on, and of nobody else's.
func TestConnectionsOfFurtherAddresses(t *testing.T) {
	table, err := session.Open(filepath.Join(t.TempDir(), "s.db"), anyClient{}, slog.New(slog.DiscardHandler))
	must(t, err)
	defer table.Close()
	key := func(host byte) session.Key {
		return session.Key{MAC: datapath.MAC{2, 0, 0, 0, 0, host}, Addr: netip.AddrFrom4([4]byte{10, 1, 0, host})}
	}
	ada, bob, four, six := key(5), key(6), netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("2001:db8::5")
	for _, k := range []session.Key{ada, bob} {
		must(t, table.Lease(k, "", time.Now().Add(time.Hour)))
	}
	_, err = table.Admit(ada.Addr, session.Login{User: "ada"})
	must(t, err)
	for _, addr := range []netip.Addr{four, six} {
		must(t, table.Extend(ada, addr))
	}
	must(t, table.Extend(bob, netip.MustParseAddr("10.1.0.10")))
	want := map[netip.Addr]bool{ada.Addr: true, four: true, six: true}
	if got := (&gateway{table: table}).loggedIn(); !maps.Equal(got, want) {
		t.Errorf("logged in are %v, want %v", got, want)
	}
}
