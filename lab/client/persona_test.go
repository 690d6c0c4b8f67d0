// Tests of personas: clients that share one network namespace, each with a hardware address and a lease of its own.
// newPersonas makes them, at one end of a veth whose other end has dnsmasq.

package client

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// newPersonas are n of them at a server that leases addresses from 10.77.1.1 on.
func newPersonas(t *testing.T, n int) (labtest.Pair, *Pool) {
	t.Helper()
	pair := labtest.NewPair(t)
	cmd := exec.Command(
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping",
		"--interface=gwt1", "--except-interface=lo", "--leasefile-ro", "--user=root", "--dhcp-authoritative",
		"--log-facility=/dev/null",
		"--pid-file=", "--dhcp-range=10.77.1.1,10.77.1.250,255.255.0.0,10m")
	pair.Server.Do(func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var pool *Pool
	var err error
	pair.Client.Do(func() {
		pool, err = NewPool(t.Context(), Config{
			Kind: KindPersona, Count: n, Parent: "gwt0", LAN: netip.MustParsePrefix("10.77.0.0/16"), Gateway: labtest.ServerIP,
			Lab: 't',
		}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pair.Client.Do(func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	var done func()
	pair.Client.Do(func() { done, err = pool.host.hold() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return pair, pool
}

// leaseInNamespace leases an address for a client, in its host's namespace.
func leaseInNamespace(t *testing.T, pair labtest.Pair, c *Client) (ip netip.Addr, tries Tries) {
	t.Helper()
	var err error
	pair.Client.Do(func() { tries, err = c.net.lease(t.Context()) })
	if err != nil || !c.LocalIP().IsValid() {
		t.Fatalf("client %d leased %s: %v", c.Num, c.LocalIP(), err)
	}
	return c.LocalIP(), tries
}

// TestPersonaLeasesAgain gets its address again: the server still has it down as leased.
func TestPersonaLeasesAgain(t *testing.T) {
	pair, pool := newPersonas(t, 2)
	c := pool.Clients[0].net.(*personaClient)
	had, _ := leaseInNamespace(t, pair, c.Client)
	leaseInNamespace(t, pair, pool.Clients[1])
	c.state.Lock()
	err := c.dropAddress() // without a word to the server
	c.state.Unlock()
	if err != nil || c.LocalIP().IsValid() {
		t.Fatalf("after it left: %s, %v", c.LocalIP(), err)
	}
	if got, _ := leaseInNamespace(t, pair, c.Client); got != had {
		t.Errorf("it came back with %s, it had %s", got, had)
	}
}

// TestPersonaDeclinesAnothersAddress: a server offers a client the address it had before; by
// then another client has it.
func TestPersonaDeclinesAnothersAddress(t *testing.T) {
	pair, pool := newPersonas(t, 1)
	c := pool.Clients[0].net.(*personaClient)
	had, _ := leaseInNamespace(t, pair, c.Client)
	var err error
	pair.Client.Do(func() { err = c.release(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	c.host.claim(had, 99)
	got, tries := leaseInNamespace(t, pair, c.Client)
	if got == had || tries.Count < 2 || tries.Refusal == nil ||
		!strings.Contains(tries.Refusal.Error(), "another client") {
		t.Errorf("it took %s after %s: %+v", got, had, tries)
	}
}
