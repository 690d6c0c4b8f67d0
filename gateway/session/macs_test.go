// A test of macs, the index of the clients by MAC address: a linked list for each MAC address.

package session

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestMACs: the list of a MAC address holds exactly the clients that have it.
func TestMACs(t *testing.T) {
	m, clients, of := macs{}, make([]*client, 20), map[*client]datapath.MAC{}
	for i := range clients {
		clients[i] = &client{}
	}
	for range 5000 {
		c, mac := clients[rand.IntN(len(clients))], datapath.MAC{5: byte(rand.IntN(5))}
		m.put(c, mac)
		if of[c] = mac; mac == (datapath.MAC{}) {
			delete(of, c)
		}
		found := 0
		for mac, first := range m {
			if n := m.count(mac, len(clients)); n == 0 || m.count(mac, n-1) != n-1 {
				t.Fatalf("%v has %d clients", mac, n)
			}
			for c := first; c != nil; c = c.nextOfMAC {
				if found++; of[c] != mac || !slices.Contains(clients, c) {
					t.Fatalf("a client of %v is in the list of %v", of[c], mac)
				}
			}
		}
		if found != len(of) {
			t.Fatalf("the lists have %d clients, want %d", found, len(of))
		}
	}
}
