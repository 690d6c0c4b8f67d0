// A test that connection tracking tells which client has a translated connection.

package ident

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// TestMasqueradedClient: connection tracking names the client of a masqueraded connection, and of no other.
func TestMasqueradedClient(t *testing.T) {
	space := netnstest.NewSpace(t)
	space.Run(t, `nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post tcp dport 5000 snat to 127.0.0.9:4000'`)
	space.Do(func() {
		listener, err := net.Listen("tcp4", "127.0.0.1:5000")
		if err != nil {
			t.Error(err)
			return
		}
		defer listener.Close()
		conn, err := net.Dial("tcp4", "127.0.0.1:5000")
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		near, far := netip.MustParseAddrPort("127.0.0.9:4000"), netip.MustParseAddrPort("127.0.0.1:5000")
		from, ok, err := masqueradedClient(near, far)
		if want := conn.LocalAddr().(*net.TCPAddr).AddrPort(); err != nil || !ok || from != want {
			t.Errorf("%v, %v, %v; want %v", from, ok, err, want)
		}
		if from, ok, err = masqueradedClient(netip.MustParseAddrPort("127.0.0.9:4001"), far); ok || err != nil {
			t.Errorf("an unknown one: %v, %v, %v", from, ok, err)
		}
	})
}
