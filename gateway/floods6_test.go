package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// crowd is how many devices a flood makes up, each with an address of its own.
const crowd = 100_000

// floods are what each device of a crowd sends, from a MAC address and about an address of the prefix.
var floods = map[string]func(f *field6, l link6, addr netip.Addr) []byte{
	"duplicate address detection": func(_ *field6, l link6, addr netip.Addr) []byte {
		return l.whole(netip.IPv6Unspecified(), askedAt6(addr), icmp6, neighbour6(135, addr, nil, ""))
	},
	"neighbour solicitations": func(f *field6, l link6, addr netip.Addr) []byte {
		return l.whole(addr, f.local, icmp6, neighbour6(135, f.local, l.own, ""))
	},
	"packets": func(_ *field6, l link6, addr netip.Addr) []byte {
		return l.whole(addr, netip.MustParseAddr(outside6), unix.IPPROTO_UDP, datagram6(40000, 443, "a flood"))
	},
}

// frames6 are the frames of a flood.
func (f *field6) frames6(name string) [][]byte {
	frames := make([][]byte, crowd)
	for i := range frames {
		a, b, c := byte(i>>16), byte(i>>8), byte(i)
		addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 8: name[0], 13: a, 14: b, 15: c})
		l := link6{net.HardwareAddr{2, 0xf0, name[0], a, b, c}, f.lan.gateway}
		frames[i] = floods[name](f, l, addr)
	}
	return frames
}

// floods6: made-up devices, each with another MAC address and another address of the prefix, keep nobody out and fill
// neither the gateway's memory nor the kernel's table of neighbours. The gateway asks about an address three times at
// most.
func (f *field6) floods6(t *testing.T) {
	for name := range floods {
		t.Run(name, func(t *testing.T) {
			sent, done := framesSent(t), make(chan error)
			go func() { done <- injected("intruder", "i0", f.frames6(name)) }()
			for flooding := true; flooding; {
				netnstest.Await(t, "the victim's way out", func() error { return reaches6(f.victim) })
				select {
				case err := <-done:
					must(t, err)
					flooding = false
				default:
				}
			}
			f.holds(t, framesSent(t)-sent)
		})
	}
	f.newcomer6(t)
}

// holds checks what the gateway has after a flood, during which it has sent so many frames.
func (f *field6) holds(t *testing.T, sent uint64) {
	t.Helper()
	st, err := f.c.Status(t.Context())
	must(t, err)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	known := strings.Count(sh(t, "ip -6 neigh show dev lan0 nud all"), "\n") -
		strings.Count(sh(t, "ip -6 neigh show dev lan0 nud permanent"), "\n")
	const most, few, megabytes, questions = bindings.MaxTentative, 64, 1 << 20, 3
	if n := st.IPv6.Addresses; n > most+few || len(f.d.sessions(t)) > 4096 || m.HeapInuse > 64*megabytes || known > few ||
		sent > questions*(crowd+most) { // and about what is left of the flood before
		t.Errorf("%d addresses, %d clients, %d MB, %d neighbours that the kernel has learned, %d frames sent", n,
			len(f.d.sessions(t)), m.HeapInuse/megabytes, known, sent)
	}
}

// framesSent is how many frames the gateway has sent to the LAN.
func framesSent(t *testing.T) (n uint64) {
	t.Helper()
	m := regexp.MustCompile(`TX:.*\n\s*\d+\s+(\d+)`).FindStringSubmatch(sh(t, "ip -s link show lan0"))
	if m == nil {
		t.Fatal("no count of lan0's frames")
	}
	fmt.Sscan(m[1], &n)
	return n
}

// newcomer6: a device that comes after the floods has an address, and the portal.
func (f *field6) newcomer6(t *testing.T) {
	p := program6{name: "newcomer"}
	p.plug6(t, 1)
	p.awaitAddr(t, "global")
	p.login(t)
	netnstest.Await(t, "the way out of who came last", p.reaches)
}
