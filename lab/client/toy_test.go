// A kind of client for tests, toyKind, which shows what a kind needs: one more address at an interface for each client.

package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// toyKind is a kind of client in a file of its own: one more address at the host's
// interface for each client.
func toyKind(space *netnstest.Space) Kind {
	return Kind{
		Name: "toy", MaxClients: 5, MaxSending: 5, Static: true, MTU: traffic.EthernetMTU,
		open: func(Config) (host, error) {
			return unsharedHost(func(c *Client) attachment { return toyClient{c, space} }), nil
		},
	}
}

// toyClient is a client of the kind toyKind.
type toyClient struct {
	*Client
	space *netnstest.Space
}

func (c toyClient) create(context.Context) (err error) {
	ip := addAddr(c.cfg.LAN.Addr(), c.Num)
	c.space.Do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(c.cfg.Parent); err == nil {
			err = netlink.AddrAdd(
				link, &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(c.cfg.LAN.Bits(), 32)}})
		}
	})
	c.setIP(ip)
	return err
}

func (c toyClient) lease(context.Context) (Tries, error) { return Tries{Count: 1}, nil }
func (c toyClient) release(context.Context) error        { return nil }

func (c toyClient) dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	c.space.Do(func() { conn, err = c.dialer(addr).DialContext(ctx, "tcp", addr) })
	return conn, err
}

// TestToyKind adds a kind of client by one line of the table. Its clients are listed among
// the kinds, bounded by its own limit, and seen by a server under their addresses.
func TestToyKind(t *testing.T) {
	pair := labtest.NewPair(t)
	before := kinds
	t.Cleanup(func() { kinds = before })
	kinds = append(slices.Clone(kinds), toyKind(pair.Client))

	cfg := Config{Kind: "toy", Count: 3, Parent: "gwt0", LAN: netip.MustParsePrefix("10.77.9.0/16"), Lab: 't'}
	for _, bad := range []Config{{Kind: "toy", Count: 6}, {Kind: "toy", Count: 1, Guests: 1, FirstGuest: 2}} {
		if _, err := NewPool(t.Context(), bad, nil); err == nil {
			t.Errorf("%+v is no error", bad)
		}
	}
	if !slices.Contains(Kinds(nil), "toy") || KindOf("toy").MaxClients != 5 {
		t.Errorf("the kinds are %v", Kinds(nil))
	}
	pool, err := NewPool(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := FirstFailure(pool.Lease(t.Context(), Pace{})); err != nil {
		t.Fatal(err)
	}
	at := labtest.Greet(t, pair.Server).String()
	for i, c := range pool.Clients {
		conn, err := c.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		saw, err := io.ReadAll(conn)
		conn.Close()
		if want := fmt.Sprintf("10.77.9.%d", i+1); err != nil || string(saw) != want || c.LocalIP().String() != want {
			t.Errorf("client %d has %s and was seen as %q, %v; want %s", c.Num, c.LocalIP(), saw, err, want)
		}
	}
	if err := pool.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
