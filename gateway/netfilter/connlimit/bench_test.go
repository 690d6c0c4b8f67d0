package connlimit_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/connlimit"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// BenchmarkSet gives one client more a limit, and takes it away again, where so many have one.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := netnstest.NewSpace(b)
			var err error
			s.Do(func() {
				var l *connlimit.Limiter
				if l, err = connlimit.Open("lan0", slog.New(slog.DiscardHandler)); err != nil {
					return
				}
				defer l.Close()
				set := func(i int) error {
					a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(10<<24+i))))
					return l.Set(datapath.IDOf(a), []netip.Prefix{netip.PrefixFrom(a, 32)}, 100)
				}
				for i := range n {
					if err = set(i); err != nil {
						return
					}
				}
				if err = l.Start(); err != nil {
					return
				}
				for b.Loop() {
					if err = set(n); err != nil {
						return
					}
					if err = l.Remove(datapath.ID(10<<24 + n)); err != nil {
						return
					}
				}
			})
			must(b, err)
		})
	}
}

// BenchmarkFirstPacket sends the first packet of a connection by UDP of a client that has so many already.
func BenchmarkFirstPacket(b *testing.B) {
	for _, n := range []uint32{0, 100, 700} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newScene(b)
			if n > 0 {
				s.set(7, n, one)
			}
			var err error
			s.client.Do(func() {
				var c net.PacketConn
				if c, err = net.ListenPacket("udp", one+":0"); err != nil {
					return
				}
				defer c.Close()
				to := func(i int) *net.UDPAddr {
					return &net.UDPAddr{IP: net.IPv4(192, 0, 2, byte(2+i/50_000)), Port: 1024 + i%50_000}
				}
				for i := range int(n) {
					c.WriteTo([]byte{1}, to(i))
				}
				i := int(n)
				for b.Loop() {
					c.WriteTo([]byte{1}, to(i))
					i++
				}
			})
			must(b, err)
		})
	}
}
