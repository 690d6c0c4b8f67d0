// Helpers: twins are two gateways that get the same frames. One caches flows, the other one's stack forwards every
// packet. What arrives behind them is compared.

package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// twin is a gateway between two wires, the client's and the server's. The machines at the wires send nothing by
// themselves.
type twin struct {
	*datapathtest.World
	client, server         *datapathtest.Wire
	clientSeen, serverSeen int // number of frames of each wire that were compared
}

// twins are two gateways that get the same frames: one caches flows, in the other the kernel's stack
// forwards every packet.
type twins struct {
	cached, plain *twin
	markers       uint64
	begun         uint16 // number of connections that were begun
	drawn         map[tuple][2]uint16
	apart         bool   // the kernels drew different ports for a frame that shake compared
	drops         uint64 // frames that links had dropped at the last call of dropped
	six           bool   // frames are sent as IPv6 (frame6)
}

// marking is the IP protocol of markers, packets that every rule set lets pass. When a marker arrives, all packets that
// were sent before it have been forwarded or dropped.
const marking = 253

func newTwins(t testing.TB) *twins { t.Helper(); return makeTwins(t, datapathtest.Shape{Switch: true}) }

func makeTwins(t testing.TB, shape datapathtest.Shape) *twins {
	t.Helper()
	netnstest.NeedTCX(t)
	netnstest.OnOneCPU(t)
	open := func(p datapathtest.Path) *twin {
		w := &twin{World: datapathtest.NewWorld(t, p, shape)}
		w.Router.Run(t, `ip addr add 192.0.2.77/32 dev wan0; ip addr add 192.0.2.78/32 dev wan0; ip link set wan0 mtu 1400
sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000`)
		for _, s := range []datapathtest.Station{w.Alice, w.Bob} {
			c := datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Admitted: true}
			if shape.IPv6 {
				c.Addrs = append(c.Addrs, datapathtest.Six(s.Addr))
			}
			must(t, w.Set(c))
			s.Run(t, mute)
		}
		w.Server.Run(t, mute)
		w.client, w.server = datapathtest.NewWire(t, w.Alice.Space, "c0"), datapathtest.NewWire(t, w.Server, "s0")
		return w
	}
	p := cachePath(t)
	stack := p
	for _, q := range paths() {
		if q.Name == "stack" {
			stack = q
		}
	}
	tw := &twins{cached: open(p), plain: open(stack), drawn: map[tuple][2]uint16{}, six: shape.IPv6}
	// The cache would set this, but may not begin under the first rules.
	tw.each(func(w *twin) { w.Router.Run(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1") })
	return tw
}

// mute keeps a machine's stack from answering what the test sends to it.
const mute = `nft 'table inet mute { chain in { type filter hook prerouting priority -400; policy drop; }; }'`

func (tw *twins) each(f func(*twin)) { f(tw.cached); f(tw.plain) }

// rules replaces the rules of both gateways, and waits until the one with the cache has read them.
func (tw *twins) rules(t testing.TB, name, rules string) {
	t.Helper()
	script := fmt.Sprintf(
		"for t in $(nft list tables | grep ' round' | cut -d' ' -f2,3 | tr ' ' ,); do echo delete table $(echo $t | tr , ' "+
			"'); done >/tmp/nat-$$; cat >>/tmp/nat-$$ <<'END'\n%s\nEND\nnft -f /tmp/nat-$$; rm /tmp/nat-$$", rules)
	tw.each(func(w *twin) { w.Router.Run(t, script) })
	tw.dropped(t) // do not count earlier drops
	netnstest.Await(t, "the cache's word of "+name, func() error {
		if _, reason := tw.cached.ForwardingWhy(t); !strings.Contains(reason, name+" ") {
			return errors.New(reason)
		}
		return nil
	})
}

// marker returns the next marker.
func (tw *twins) marker(from func(*datapathtest.Frame)) []byte {
	tw.markers++
	return datapathtest.Protocol(
		marking, from, datapathtest.Carrying(binary.BigEndian.AppendUint64([]byte("marker"), tw.markers)))
}

// send sends frames through both gateways, each from the wire of its sender, and waits until they have been handled.
func (tw *twins) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	up := tw.marker(func(*datapathtest.Frame) {})
	down := tw.marker(func(f *datapathtest.Frame) {
		datapathtest.Down(f)
		f.IP.SrcIP = datapathtest.Second.AsSlice() // other addresses than on the way up: one connection each
	})
	if tw.six {
		up, down = frame6(up), frame6(down)
	}
	tw.each(func(w *twin) {
		for _, f := range frames {
			if tw.six {
				f = frame6(f)
			}
			if isUp(f) {
				w.client.Send(t, f)
			} else {
				w.server.Send(t, f)
			}
		}
		w.client.Send(t, up)
		w.server.Send(t, down)
	})
	tw.each(func(w *twin) {
		awaitMarker(t, w.server, w.serverSeen, up)
		awaitMarker(t, w.client, w.clientSeen, down)
	})
}

// isUp reports whether a frame is for the gateway's LAN.
func isUp(frame []byte) bool { return bytes.HasPrefix(frame, lanMAC[:]) }

func awaitMarker(t testing.TB, w *datapathtest.Wire, since int, marker []byte) {
	t.Helper()
	text := marker[len(marker)-14:]
	late := time.Now().Add(2 * time.Minute)
	for {
		all := w.Frames()
		for i := len(all) - 1; i >= since; i-- {
			if bytes.HasSuffix(all[i], text) {
				return
			}
		}
		if time.Now().After(late) {
			t.Fatalf("%s did not arrive; %d frames did\n%s", describe([][]byte{marker}), len(all)-since, describe(all[since:]))
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// fresh returns the frames that the gateway has sent on a wire since the last call, except markers and frames of
// another family of addresses.
func (tw *twins) fresh(w *datapathtest.Wire, seen *int, gateway datapath.MAC) (frames [][]byte) {
	all := w.Frames()
	for _, f := range all[*seen:] {
		if !bytes.HasPrefix(f[6:], gateway[:]) {
			continue
		}
		if tw.six && isForwarded6(f) || !tw.six && len(f) > 34 && f[12] == 8 && f[13] == 0 && f[23] != marking {
			frames = append(frames, f)
		}
	}
	*seen = len(all)
	return frames
}

// isError reports whether a frame is an ICMP error of a gateway.
func isError(f []byte) bool {
	const unreachable, exceeded = 3, 11
	icmp := 14 + int(f[14]&0xf)*4
	return f[23] == unix.IPPROTO_ICMP && len(f) > icmp && (f[icmp] == unreachable || f[icmp] == exceeded)
}

// own sets to zero what each gateway chooses by itself in an ICMP error: the identification, or the flow label.
func withoutOwnChoices(f []byte) []byte {
	if isIPv6(f) {
		return withoutOwnChoices6(f)
	}
	if !isError(f) {
		return f
	}
	f = bytes.Clone(f)
	f[18], f[19], f[24], f[25] = 0, 0, 0, 0
	return f
}

// arrival is the frames that arrived at the client and at the server.
type arrival struct{ client, server [][]byte }

// arrivals sends frames, and returns what arrived with the cache and without. An ICMP error that a client's frame
// causes goes back by other queues than the markers. So where the two arrivals differ, although no link has dropped a
// frame, it sends further markers and looks again, on a busy machine for more than a second.
func (tw *twins) arrivals(t testing.TB, frames ...[]byte) (cached, plain arrival) {
	t.Helper()
	take := func(w *twin, a *arrival) {
		a.client = append(a.client, tw.fresh(w.client, &w.clientSeen, lanMAC)...)
		a.server = append(a.server, tw.fresh(w.server, &w.serverSeen, wanMAC)...)
	}
	for wait := time.Millisecond; ; wait *= 2 {
		tw.send(t, frames...)
		take(tw.cached, &cached)
		take(tw.plain, &plain)
		if cached.equal(plain) || cached.asMany(plain) && wait > 2*time.Millisecond || wait > time.Second ||
			cached.lacks(plain) && tw.linkDrops(t) > tw.drops {
			break
		}
		time.Sleep(wait)
		frames = nil
	}
	return cached, plain
}

// equal reports whether the same frames arrived. Frames that came in at one link keep their order; ICMP errors of the
// gateway about frames of the other link may come anywhere between them.
func (a arrival) equal(b arrival) bool {
	return equalFrames(a.client, b.client) && equalFrames(a.server, b.server)
}

func equalFrames(a, b [][]byte) bool {
	same := func(a, b []byte) bool { return bytes.Equal(withoutOwnChoices(a), withoutOwnChoices(b)) }
	said := func(f [][]byte) [][]byte {
		return slices.DeleteFunc(slices.Clone(f), func(f []byte) bool { return !isSaid(f) })
	}
	forwarded := func(f [][]byte) [][]byte { return slices.DeleteFunc(slices.Clone(f), isSaid) }
	return slices.EqualFunc(forwarded(a), forwarded(b), same) && slices.EqualFunc(said(a), said(b), same)
}

// isSaid reports whether a frame is a gateway's own. It has the TTL with which Linux begins, and forwarded frames have
// a smaller one.
func isSaid(f []byte) bool {
	if isIPv6(f) {
		return f[21] == 64
	}
	return f[22] == 64
}

// lacks reports whether two arrivals differ only in frames that one of them lacks.
func (a arrival) lacks(b arrival) bool {
	return within(a.client, b.client) && within(a.server, b.server)
}

// within reports whether one list of frames is the other without some of its frames.
func within(a, b [][]byte) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	for _, f := range b {
		if len(a) > 0 && bytes.Equal(withoutOwnChoices(a[0]), withoutOwnChoices(f)) {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// dropped reports whether links have dropped frames since the last call. These may be missing in arrivals.
func (tw *twins) dropped(t testing.TB) bool {
	t.Helper()
	n := tw.linkDrops(t)
	more := n - tw.drops
	tw.drops = n
	if more > 0 {
		t.Logf("links dropped %d frames", more)
	}
	return more > 0
}

func (tw *twins) linkDrops(t testing.TB) uint64 {
	return tw.cached.LinkDrops(t) + tw.plain.LinkDrops(t)
}

// asMany reports whether as many frames arrived at each end. The frames may differ, if the kernels drew other ports.
func (a arrival) asMany(b arrival) bool {
	return len(a.client) == len(b.client) && len(a.server) == len(b.server)
}

func (a arrival) String() string {
	return "at the client\n" + describe(a.client) + "at the server\n" + describe(a.server)
}

// compare sends frames, and fails the test if the arrivals with the cache and without differ, except in source ports
// that the kernels drew. It returns what arrived without the cache.
func (tw *twins) compare(t testing.TB, frames ...[]byte) arrival {
	t.Helper()
	cached, plain := tw.arrivals(t, frames...)
	if !cached.equal(plain) && !(tw.dropped(t) && cached.lacks(plain)) &&
		!(!tw.six && tw.drewPorts(t, cached.client, plain.client) && tw.drewPorts(t, cached.server, plain.server)) {
		t.Errorf("of\n%swith the cache arrived\n%swithout\n%s", describe(frames), cached, plain)
	}
	return plain
}

// describe lists frames.
func describe(frames [][]byte) string {
	var b strings.Builder
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		for _, l := range p.Layers() {
			if l.LayerType() != gopacket.LayerTypePayload {
				b.WriteString("  " + gopacket.LayerString(l) + "\n")
			}
		}
	}
	if b.Len() == 0 {
		return "  nothing\n"
	}
	return b.String()
}
