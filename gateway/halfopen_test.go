package gateway

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// opening is the beginning of a TCP connection.
func opening(t *testing.T, from, to []byte, source, addr netip.AddrPort) []byte {
	t.Helper()
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: source.Addr().AsSlice(), DstIP: addr.Addr().AsSlice()}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(source.Port()), DstPort: layers.TCPPort(addr.Port()), Seq: 1, SYN: true, Window: 1000}
	tcp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}, ip, tcp))
	return b.Bytes()
}

// TestHalfOpenConnections: a client that begins 10,000 connections, to the portal and to a web site, and answers none,
// keeps no other client from its pages.
func TestHalfOpenConnections(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(d.cfg, false)) })
	lease(t)
	ownMAC := addIntruder(t)
	script := filepath.Join(t.TempDir(), "udhcpc")
	// the kernel does not get the address, and resets nothing
	must(t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = bound ] || exit 0\necho leased $ip\n"), 0o755))
	m := regexp.MustCompile(`leased (\S+)`).FindStringSubmatch(
		sh(t, "ip netns exec intruder busybox udhcpc -i i0 -n -q -s "+script))
	if m == nil {
		t.Fatal("the intruder gets no lease")
	}
	sh(t, "ip -n client route replace default via 10.1.0.1")
	addr, lan := netip.MustParseAddr(m[1]), linkMAC(t, "lan0")
	for _, address := range []string{"10.1.0.1:8080", "203.0.113.9:80"} {
		var flood [][]byte
		for n := range uint16(5_000) {
			flood = append(flood, opening(t, ownMAC, lan, netip.AddrPortFrom(addr, 2000+n), netip.MustParseAddrPort(address)))
		}
		to := binary.BigEndian.Uint16(flood[0][36:])
		done := make(chan error, 1)
		go func() { done <- injected("intruder", "i0", flood) }()
		for flooding := true; flooding; {
			select {
			case err := <-done:
				must(t, err)
				flooding = false // and once more
			default:
			}
			if page := sh(t, curl+"http://10.1.0.1:8080/login"); !strings.Contains(page, `name="token"`) {
				t.Errorf("while port %d is flooded the portal answers\n%s", to, page)
			}
			if caught := sh(t, curl+`-o /dev/null -w '%{http_code}' http://192.0.2.2/`); caught != "302" {
				t.Errorf("while port %d is flooded the web is answered by %s", to, caught)
			}
		}
	}
}
