// Tests of the redirection of clients' web requests to the portal. tcp makes a packet from the client to the site,
// changed by edits such as ports, syn and carrying (a payload); between sets its addresses (packets_test.go).

package tun

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

// The tests of redirects: the packets of a stranger's connection to a site go to the portal instead, and the portal's
// answers get the site's address as their source.

func newTestRedirects() *redirects { return newRedirects(addrNumber(portal), []uint16{8080, 8443}) }

// toPortal returns a client's packet for a site as redirected to the portal.
func toPortal(ip []byte) []byte {
	out := bytes.Clone(ip)
	readdress(out, out[ipLen:], 16, addrNumber(portal), 2, 8080)
	return out
}

// answerOf returns the portal's answer to a client's port, as the kernel sends it.
func answerOf(port uint16) []byte { return tcp(between(portal, client), ports(8080, port)) }

// TestRedirects: a connection's packets go to the portal, and the portal's answers seem to come from the site.
func TestRedirects(t *testing.T) {
	r, now := newTestRedirects(), int64(time.Second)
	if ip := tcp(); r.toPortal(ip, now) || !bytes.Equal(ip, tcp()) {
		t.Error("a packet of no connection is redirected")
	}
	first := tcp(syn)
	if !r.toPortal(first, now) || !bytes.Equal(first, toPortal(tcp(syn))) {
		t.Errorf("the first packet is\n%x\nwant\n%x", first, toPortal(tcp(syn)))
	}
	checkSums(t, first)
	next := tcp(carrying(text(333)))
	if !r.toPortal(next, now) {
		t.Error("the next packet is not redirected")
	}
	checkSums(t, next)
	answer := answerOf(40000)
	r.fromPortal(answer, now)
	if want := tcp(between(site, client), ports(80, 40000)); !bytes.Equal(answer, want) {
		t.Errorf("the answer is\n%x\nwant\n%x", answer, want)
	}
	for name, ip := range map[string][]byte{
		"of another connection": answerOf(40001),
		"to another client":     tcp(between(portal, another), ports(8080, 40000)),
		"from another port":     tcp(between(portal, client), ports(8443, 40000)),
		"UDP":                   udp(between(portal, client), ports(8080, 40000)),
	} {
		got := bytes.Clone(ip)
		if r.fromPortal(got, now); !bytes.Equal(got, ip) {
			t.Errorf("%s: changed to %x", name, got)
		}
	}
	if ip := tcp(between(client, another)); r.toPortal(ip, now) {
		t.Error("a packet for another site is taken for the same connection's")
	}
}

// TestRedirectReusedPort: when a client uses a port for another connection, the portal's answers get the address of
// that connection's destination.
func TestRedirectReusedPort(t *testing.T) {
	r, now := newTestRedirects(), int64(time.Second)
	r.toPortal(tcp(syn), now)
	r.toPortal(tcp(syn, between(client, another)), now)
	answer := answerOf(40000)
	if r.fromPortal(answer, now); sourceOf(answer) != addrNumber(another) {
		t.Errorf("the answer is from %x", answer[12:16])
	}
	r.direct(tcp(between(client, portal), ports(40000, 8080))) // in the middle of a connection: no change
	answer = answerOf(40000)
	if r.fromPortal(answer, now); sourceOf(answer) != addrNumber(another) {
		t.Errorf("the answer is from %x", answer[12:16])
	}
	r.direct(tcp(syn, between(client, portal), ports(40000, 8080)))
	answer = answerOf(40000)
	if r.fromPortal(answer, now); sourceOf(answer) != addrNumber(portal) {
		t.Error("an answer to a connection to the portal itself is changed")
	}
}

// TestRedirectsAreBounded: a new connection replaces the same client's oldest one, and idle clients are forgotten.
func TestRedirectsAreBounded(t *testing.T) {
	r := newTestRedirects()
	other := netip.MustParseAddr("10.1.0.11")
	r.toPortal(tcp(syn, between(other, site)), int64(time.Second))
	for i := range 2 * perClient {
		r.toPortal(tcp(syn, ports(uint16(1000+i), 80)), int64(i+2)*int64(time.Second))
	}
	known := func(c netip.Addr, port uint16) bool {
		answer := tcp(between(portal, c), ports(8080, port))
		r.fromPortal(answer, int64(2*perClient+3)*int64(time.Second))
		return sourceOf(answer) == addrNumber(site)
	}
	if known(client, 1000+perClient-1) || !known(client, 1000+perClient) || !known(client, 1000+2*perClient-1) {
		t.Error("it is not the client's oldest connection that was replaced")
	}
	if !known(other, 40000) {
		t.Error("another client lost its connection")
	}
	r.toPortal(tcp(syn, between(netip.MustParseAddr("10.1.0.12"), site)),
		int64(2*perClient+4+redirectIdle)*int64(time.Second))
	if len(r.clients) != 1 {
		t.Errorf("%d clients are known, want only the one that is not idle", len(r.clients))
	}
}

// TestNoPortal: where the gateway has no portal, no packet is taken for the portal's.
func TestNoPortal(t *testing.T) {
	r := newRedirects(addrNumber(portal), nil)
	if ip := tcp(between(portal, client), ports(0, 40000)); r.sends(ip) {
		t.Error("without a portal, a packet is taken for the portal's")
	}
}
