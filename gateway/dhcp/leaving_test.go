// Tests of DHCPRELEASE. main_test.go has the helpers: newLAN makes the server's interface and returns the name of its
// other end; newWire sends and receives frames there; start runs a server with a file of leases (leasesFile) and
// returns a journal, which records the leases that its listener was told of; macOf(i) is the MAC of device i, and
// message makes a DHCP message of it.

package dhcp

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// presence answers, in place of clients, whether they use their addresses: one question after the other.
type presence struct{ present chan bool }

func (p presence) ask(ctx context.Context, _ MAC, _ netip.Addr) (bool, error) {
	select {
	case found := <-p.present:
		return found, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// TestReleaseIsVerified: a lease ends by RELEASE or DECLINE only if its client does not answer for the address. Long:
// the steps of one run, each of which needs the state that the one before left.
func TestReleaseIsVerified(t *testing.T) {
	w := newWire(t, newLAN(t))
	p := presence{make(chan bool)}
	s, j := start(t, leasesFile(t), func(c *Config) { c.Present, c.askAfter = p.ask, 1 })
	mac := macOf(1)
	addr := w.lease(mac).YourIPAddr
	release := func() *dhcpv4.DHCPv4 {
		return message(t, dhcpv4.MessageTypeRelease, mac, dhcpv4.WithClientIP(addr))
	}
	decline := func() *dhcpv4.DHCPv4 {
		return message(t, dhcpv4.MessageTypeDecline, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr)))
	}
	request := func() *dhcpv4.DHCPv4 {
		return message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr)))
	}
	st := station{mac: mac}

	w.silent(st, release())
	w.silent(st, release()) // one question
	p.present <- true
	await(t, "the decision", func() bool { return s.Stats().StillThere == 1 })
	w.silent(st, decline())
	w.silent(st, request()) // until it is decided
	w.silent(st, message(t, dhcpv4.MessageTypeDiscover, mac))
	renewal := message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithClientIP(addr))
	if ack, _ := w.ask(st, renewal); ack.MessageType() != dhcpv4.MessageTypeAck { // it uses the address
		t.Errorf("%s to a renewal while a DECLINE is being decided", ack.MessageType())
	}
	p.present <- false
	w.silent(st, decline())
	p.present <- true
	await(t, "the decision", func() bool { return s.Stats().StillThere == 2 })

	w.silent(st, release())
	if ack, _ := w.ask(st, request()); ack.MessageType() != dhcpv4.MessageTypeAck { // the client stays
		t.Errorf("%s after a RELEASE that is not decided", ack.MessageType())
	}
	p.present <- false
	w.silent(st, release())
	p.present <- true // asked after the former question had been answered
	await(t, "the decision", func() bool { return s.Stats().StillThere == 3 })
	if got := j.all(); len(got) < 1 || got[len(got)-1][:6] != "leased" || s.Stats().Leased != 1 {
		t.Errorf("of a client that is there the listener hears %q", got)
	}

	w.silent(st, release())
	p.present <- false
	await(t, "the end of the lease", func() bool { return s.Stats().Leased == 0 })
	w.lease(mac)
	w.silent(st, decline())
	p.present <- false
	await(t, "the address to be set aside", func() bool { return s.Stats().DeclinedAddresses == 1 })
}

// TestReleaseByOtherIdentifier: a client that sends its identifier only sometimes ends its lease with or without it;
// another identifier, and another device, do not.
func TestReleaseByOtherIdentifier(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), func(c *Config) { c.PerMAC = budget.Rate{AtOnce: 100, EachSecond: 100} })
	for _, declines := range []bool{false, true} {
		first := 0x100
		if declines {
			first = 0x200
		}
		for i, ids := range identities(first) {
			mac, before := macOf(first+i), len(j.all())
			ip := w.lease(mac, named(ids[0])).YourIPAddr
			leave := func(mac MAC, id string) *dhcpv4.DHCPv4 {
				if declines {
					wish := dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip))
					return message(t, dhcpv4.MessageTypeDecline, mac, named(id), wish)
				}
				return message(t, dhcpv4.MessageTypeRelease, mac, named(id), dhcpv4.WithClientIP(ip))
			}
			w.silent(station{mac: macOf(7)}, leave(macOf(7), ids[0]))
			w.silent(station{mac: macOf(7)}, leave(macOf(7), ""))
			w.silent(station{mac: mac}, leave(mac, ids[1]))
			ended := ids[0] == "" || ids[1] == ""
			if st := s.Stats(); (st.Leased == 0) != ended {
				t.Errorf("%d leases of %q after it left as %q, declining: %v", st.Leased, ids[0], ids[1], declines)
			}
			w.silent(station{mac: mac}, leave(mac, ids[0]))
			await(t, "the end of the lease", func() bool { return len(j.all()) == before+2 })
		}
	}
}

// TestReleaseUnverifiable: if the server cannot ask a client whether it is still there, the lease goes on, even if the
// server ends meanwhile.
func TestReleaseUnverifiable(t *testing.T) {
	w := newWire(t, newLAN(t))
	asked := make(chan struct{}, 1)
	path := leasesFile(t)
	var logs logtest.Log
	s, _ := start(t, path, func(c *Config) {
		c.askAfter, c.Log = 1, logs.Logger()
		c.Present = func(ctx context.Context, _ MAC, _ netip.Addr) (bool, error) {
			select {
			case asked <- struct{}{}:
				return false, errors.New("nobody can be asked")
			default:
				<-ctx.Done()
				return false, ctx.Err()
			}
		}
	})
	mac := macOf(1)
	addr := w.lease(mac).YourIPAddr
	w.silent(station{mac: mac}, message(t, dhcpv4.MessageTypeRelease, mac, dhcpv4.WithClientIP(addr)))
	await(t, "the decision", func() bool { return s.Stats().StillThere == 1 })
	w.silent(station{mac: mac}, message(t, dhcpv4.MessageTypeRelease, mac, dhcpv4.WithClientIP(addr)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if text := logs.String(); !strings.Contains(text, "nobody can be asked") || strings.Contains(text, "still answers") {
		t.Errorf("of a client that was not asked the log says: %s", text)
	}
	if again, _ := start(t, path, nil); again.Stats().Leased != 1 {
		t.Error("the lease has ended")
	}
}
