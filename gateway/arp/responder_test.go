// A test of answers to ARP requests. newLAN makes the interface lan0 with a client, and hostAt(last, mac) is a host by
// the last bytes of its address and MAC (arp_test.go).

package arp

import (
	"net"
	"testing"
)

// TestResponder: a host asks for the gateway by ARP. Next returns the host's addresses, and the host's kernel accepts
// Answer as the gateway's answer.
func TestResponder(t *testing.T) {
	client := newLAN(t)
	dev, err := net.InterfaceByName("lan0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Respond(dev, gateway, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// lan0 has no address, so its kernel answers nobody.
	client.Run(t, "ping -c 1 -W 20 -I 10.1.0.3 10.1.0.1 >/dev/null 2>&1 &")
	addr, mac, err := r.Next()
	if want := hostAt(3, 2); (host{addr, mac}) != want || err != nil {
		t.Fatalf("%s, %x asks, %v, want %v", addr, mac, err, want)
	}
	if err := r.Answer(addr, mac); err != nil {
		t.Fatal(err)
	}
	client.Run(t, "until ip neigh show 10.1.0.1 | grep -q 'lladdr 02:00:00:00:00:01'; do sleep 0.01; done")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Next(); err == nil {
		t.Error("a closed responder returns a host")
	}
}
