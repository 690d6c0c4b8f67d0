package arp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

var gateway = netip.MustParseAddr("10.1.0.1")

// hostAt is a host of the tests' LAN.
func hostAt(last, mac byte) host {
	return host{netip.AddrFrom4([4]byte{10, 1, 0, last}), MAC{2, 0, 0, 0, 0, mac}}
}

// newLAN makes the interface lan0, without an address, and a client with two.
func newLAN(t *testing.T) *netnstest.Space {
	t.Helper()
	client := netnstest.NewSpace(t)
	sh := func(script string) {
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sh(fmt.Sprintf(`ip link add lan0 address 02:00:00:00:00:01 type veth peer name c0 address 02:00:00:00:00:02 netns %d; ip link set lan0 up`,
		client.TID()))
	client.Run(t, netnstest.Up+"ip addr add 10.1.0.2/24 dev c0; ip addr add 10.1.0.3/24 dev c0; ip link set c0 up; up c0")
	sh(netnstest.Up + "up lan0")
	t.Cleanup(func() { client.Try("ip link del c0") })
	return client
}

// TestProbePresentHosts asks hosts that are there, by several callers and at several addresses, and such as are not.
func TestProbePresentHosts(t *testing.T) {
	newLAN(t)
	var asking sync.WaitGroup
	var probers []*Prober
	for _, all := range []bool{false, true} {
		p := &Prober{Interface: "lan0", Source: gateway, AllProtocols: all, pause: 250 * time.Millisecond}
		probers = append(probers, p)
		for h, want := range map[host]bool{hostAt(2, 2): true, hostAt(3, 2): true, hostAt(4, 2): false, hostAt(2, 3): false} {
			for range 3 {
				asking.Go(func() {
					if got, err := p.Present(t.Context(), h.addr, h.mac); got != want || err != nil {
						t.Errorf("%v is there: %v, %v, want %v (all protocols: %v)", h, got, err, want, all)
					}
				})
			}
		}
	}
	asking.Wait()
	for _, p := range probers {
		if p.conn != nil || len(p.questions) > 0 {
			t.Errorf("%d hosts are still asked, the socket is %v", len(p.questions), p.conn)
		}
		select {
		case <-p.readerEnded:
		default:
			t.Error("a socket is still read")
		}
	}
}

// TestHolders asks who has an address that one host has, that two have, and that nobody has.
func TestHolders(t *testing.T) {
	client := newLAN(t)
	client.Run(t, netnstest.Up+`ip link add m0 link c0 address 02:00:00:00:00:03 type macvlan mode bridge
ip addr add 10.1.0.3/24 dev m0; ip link set m0 up; sysctl -qw net.ipv4.conf.all.arp_ignore=1; up m0`)
	t.Cleanup(func() { client.Try("ip link del m0") })
	p := &Prober{Interface: "lan0", Source: gateway, AllProtocols: true, pause: 250 * time.Millisecond}
	var asking sync.WaitGroup
	for addr, want := range map[netip.Addr]int{hostAt(2, 2).addr: 1, hostAt(3, 2).addr: 2, hostAt(4, 2).addr: 0} {
		asking.Go(func() {
			got, err := p.Holders(t.Context(), addr)
			if len(got) != want || err != nil || want > 0 && !slices.Contains(got, hostAt(2, 2).mac) {
				t.Errorf("%s is had by %x, %v, want %d", addr, got, err, want)
			}
		})
	}
	asking.Wait()
}

// TestProbeFailures: without an interface, when the caller gives up, and when too many hosts are asked.
func TestProbeFailures(t *testing.T) {
	if _, err := (&Prober{Interface: "lan9", Source: gateway}).Present(
		t.Context(), hostAt(2, 2).addr, hostAt(2, 2).mac); err == nil {
		t.Error("an interface that is not there was asked on")
	}
	newLAN(t)
	p := &Prober{Interface: "lan0", Source: gateway}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for n := range maxAsked {
		h := host{netip.AddrFrom4([4]byte{10, 1, byte(4 + n>>8), byte(n)}), MAC{2, 0, 0, 0, 0, 9}}
		asking.Go(func() {
			if found, err := p.Present(ctx, h.addr, h.mac); found || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v is there: %v, %v", h, found, err)
			}
		})
	}
	netnstest.Await(t, "questions", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.questions) < maxAsked {
			return fmt.Errorf("%d are asked", len(p.questions))
		}
		return nil
	})
	if _, err := p.Present(t.Context(), hostAt(2, 2).addr, hostAt(2, 2).mac); !errors.Is(err, ErrBusy) {
		t.Errorf("one more question: %v", err)
	}
	_, err := p.PresentInTurn(t.Context(), hostAt(2, 2).addr, hostAt(2, 2).mac, func() bool { return false })
	if !errors.Is(err, ErrBusy) {
		t.Errorf("an address that is not wanted any more: %v", err)
	}
	waits := sync.OnceFunc(cancel)
	found, err := p.PresentInTurn(t.Context(), hostAt(2, 2).addr, hostAt(2, 2).mac, func() bool { waits(); return true })
	if !found || err != nil {
		t.Errorf("a caller that waits for its turn: %v, %v", found, err)
	}
	asking.Wait()
}

// TestForgedARPIgnored: an ARP packet whose sender differs from its Ethernet sender is ignored.
func TestForgedARPIgnored(t *testing.T) {
	frame := answer(hostAt(2, 2), hostAt(1, 1))
	if got, ok := parse(frame); got != hostAt(2, 2) || !ok {
		t.Fatalf("%v, %v of an answer", got, ok)
	}
	frame[11] = 3 // the frame's sender
	if got, ok := parse(frame); ok {
		t.Errorf("%v answers by another device's frame", got)
	}
}

// TestReply: a request for the gateway's address is answered, and nothing else.
func TestReply(t *testing.T) {
	ownHost, another := hostAt(1, 1), hostAt(9, 9)
	asking := func(change func([]byte)) []byte {
		b := append(question4(hostAt(2, 2).mac, hostAt(2, 2).addr, ownHost.addr), make([]byte, 18)...) // padded
		change(b)
		return b
	}
	got := Reply(asking(func([]byte) {}), ownHost.addr, ownHost.mac)
	from, operation, ok := sender(got)
	if !ok || from != ownHost || operation != reply || len(got) != frameLen || [6]byte(got[:6]) != hostAt(2, 2).mac ||
		[10]byte(got[32:]) != [10]byte{2, 0, 0, 0, 0, 2, 10, 1, 0, 2} {
		t.Errorf("the answer is %x", got)
	}
	for name, b := range map[string][]byte{
		"of another":         asking(func(b []byte) { copy(b[38:], another.addr.AsSlice()) }),
		"an answer":          asking(func(b []byte) { b[21] = reply }),
		"in another's frame": asking(func(b []byte) { b[11] = 3 }),
		"cut":                asking(func([]byte) {})[:frameLen-1],
		"not at all":         {},
	} {
		if got := Reply(b, ownHost.addr, ownHost.mac); got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(question4(MAC{2, 0, 0, 0, 0, 1}, gateway, hostAt(2, 2).addr))
	answer := question4(MAC{2, 0, 0, 0, 0, 1}, gateway, hostAt(2, 2).addr)
	answer[ethernetLen+7] = reply
	f.Add(answer)
	f.Add(answer[:frameLen-1])
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, ok := parse(frame)
		if ok && (len(frame) < frameLen || !h.addr.Is4()) {
			t.Errorf("%v of %x", h, frame)
		}
	})
}
