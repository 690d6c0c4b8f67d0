package neighbour

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// FuzzSender: what clients send as ARP has a sender only where all of it is there.
func FuzzSender(f *testing.F) {
	addr, mac := client(1)
	whole := reply(addr, mac, addr, mac)
	for n := range whole {
		f.Add(whole[:n])
	}
	f.Add(append(whole, make([]byte, 18)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if addr, mac, ok := sender(b); ok && (len(b) < arpBytes || addr.IsUnspecified() || !bytes.Contains(b, mac[:])) {
			t.Errorf("%x has the sender %s, %x", b, addr, mac)
		}
	})
}

// TestAnswer: a client's kernel takes the answer for the gateway's.
func TestAnswer(t *testing.T) {
	run(t, "ip link set c0 up; until ip link show lan0 | grep -q 'state UP'; do sleep 0.01; done")
	dev, err := net.InterfaceByName("lan0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenARP(dev, netip.MustParseAddr("10.1.0.1"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	far, err := net.InterfaceByName("c0")
	if err != nil {
		t.Fatal(err)
	}
	wire, err := packet.Listen(far, packet.Raw, unix.ETH_P_ARP, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	wire.SetReadDeadline(time.Now().Add(20 * time.Second))
	addr, mac := client(7)
	if err := a.Answer(addr, mac); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 128)
	n, _, err := wire.ReadFrom(b)
	if want := reply(a.gateway, datapath.MAC(dev.HardwareAddr), addr, mac); err != nil || !bytes.Equal(b[:n], want) {
		t.Errorf("the client gets %x, %v, want %x", b[:n], err, want)
	}
	asks := reply(addr, mac, a.gateway, datapath.MAC{})
	asks[header+7] = 1 // a request
	for _, frame := range [][]byte{asks[:arpBytes-1], asks} {
		if _, err := wire.WriteTo(frame, &packet.Addr{HardwareAddr: dev.HardwareAddr}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []bool{false, true} {
		if gotAddr, gotMAC, ok, err := a.Next(); err != nil || ok != want || want && (gotAddr != addr || gotMAC != mac) {
			t.Errorf("it reads %s, %x, %v, %v", gotAddr, gotMAC, ok, err)
		}
	}
}
