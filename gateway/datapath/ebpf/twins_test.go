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

// twin is a gateway between two wires. The machines at the wires send nothing by themselves.
type twin struct {
	*datapathtest.World
	client, server         *datapathtest.Wire
	clientSeen, serverSeen int // frames that were compared
}

// twins are two gateways that get the same frames: one caches flows, in the other the kernel's stack
// forwards every packet.
type twins struct {
	cached, plain *twin
	markers       uint64
	begun         uint16 // connections
	drawn         map[tuple][2]uint16
	apart         bool   // the ports of a frame that shake compared were drawn
	drops         uint64 // of links, seen by dropped
}

// marking is the protocol of packets that every rule set lets pass: when one arrives, what was sent before
// has been forwarded or not.
const marking = 253

func newTwins(t testing.TB) *twins {
	t.Helper()
	netnstest.NeedTCX(t)
	netnstest.OnOneCPU(t)
	open := func(p datapathtest.Path) *twin {
		w := &twin{World: datapathtest.NewWorld(t, p, datapathtest.Shape{Switch: true})}
		w.Router.Run(t, `ip addr add 192.0.2.77/32 dev wan0; ip addr add 192.0.2.78/32 dev wan0; ip link set wan0 mtu 1400
sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000`)
		for _, s := range []datapathtest.Station{w.Alice, w.Bob} {
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Admitted: true}))
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
	tw := &twins{cached: open(p), plain: open(stack), drawn: map[tuple][2]uint16{}}
	// As the cache has it, also while the first rules keep it from beginning.
	tw.each(func(w *twin) { w.Router.Run(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1") })
	return tw
}

// mute keeps a machine's stack from answering what the test sends to it.
const mute = `nft 'table ip mute { chain in { type filter hook prerouting priority -400; policy drop; }; }'`

func (tw *twins) each(f func(*twin)) { f(tw.cached); f(tw.plain) }

// rules replaces the rules of both, and waits until the cache has heard of it.
func (tw *twins) rules(t testing.TB, name, rules string) {
	t.Helper()
	script := fmt.Sprintf(
		"for t in $(nft list tables | grep ' round' | cut -d' ' -f2,3 | tr ' ' ,); do echo delete table $(echo $t | tr , ' "+
			"'); done >/tmp/nat-$$; cat >>/tmp/nat-$$ <<'END'\n%s\nEND\nnft -f /tmp/nat-$$; rm /tmp/nat-$$", rules)
	tw.each(func(w *twin) { w.Router.Run(t, script) })
	tw.dropped(t) // what was dropped before explains nothing
	netnstest.Await(t, "the cache's word of "+name, func() error {
		if _, reason := tw.cached.ForwardingWhy(t); !strings.Contains(reason, name+" ") {
			return errors.New(reason)
		}
		return nil
	})
}

// marker is a packet of marking, with a number.
func (tw *twins) marker(from func(*datapathtest.Frame)) []byte {
	tw.markers++
	return datapathtest.Protocol(
		marking, from, datapathtest.Carrying(binary.BigEndian.AppendUint64([]byte("marker"), tw.markers)))
}

// send sends frames in both worlds, those of clients from the client's wire, and waits until they have been handled.
func (tw *twins) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	up := tw.marker(func(*datapathtest.Frame) {})
	down := tw.marker(func(f *datapathtest.Frame) {
		datapathtest.Down(f)
		f.IP.SrcIP = datapathtest.Second.AsSlice() // other addresses than on the way up: one connection each
	})
	tw.each(func(w *twin) {
		for _, f := range frames {
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

// fresh returns the frames since the last call, IPv4's from the gateway, that are no markers.
func fresh(w *datapathtest.Wire, seen *int, gateway datapath.MAC) (frames [][]byte) {
	all := w.Frames()
	for _, f := range all[*seen:] {
		if len(f) > 34 && f[12] == 8 && f[13] == 0 && f[23] != marking && bytes.Equal(f[6:12], gateway[:]) {
			frames = append(frames, f)
		}
	}
	*seen = len(all)
	return frames
}

// isError reports whether a frame is an ICMP error of a gateway's.
func isError(f []byte) bool {
	const unreachable, exceeded = 3, 11
	icmp := 14 + int(f[14]&0xf)*4
	return f[23] == unix.IPPROTO_ICMP && len(f) > icmp && (f[icmp] == unreachable || f[icmp] == exceeded)
}

// own zeroes what two gateways choose by themselves in ICMP errors: the identification.
func own(f []byte) []byte {
	if !isError(f) {
		return f
	}
	f = bytes.Clone(f)
	f[18], f[19], f[24], f[25] = 0, 0, 0, 0
	return f
}

// arrival is the frames that arrived at the client and at the server.
type arrival struct{ client, server [][]byte }

// arrivals sends frames, and returns what arrived with the cache and without. An error that a frame from the client
// causes goes back by other queues than the markers: where the worlds differ, and no link has dropped a frame, further
// markers give it time, on a busy machine more than a second.
func (tw *twins) arrivals(t testing.TB, frames ...[]byte) (cached, plain arrival) {
	t.Helper()
	take := func(w *twin, a *arrival) {
		a.client = append(a.client, fresh(w.client, &w.clientSeen, lanMAC)...)
		a.server = append(a.server, fresh(w.server, &w.serverSeen, wanMAC)...)
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

// equal reports whether the same arrived. Frames that came in at one link keep their order. What a gateway itself says
// about frames of the other link comes among them, as the CPU has time.
func (a arrival) equal(b arrival) bool {
	return equalFrames(a.client, b.client) && equalFrames(a.server, b.server)
}

func equalFrames(a, b [][]byte) bool {
	same := func(a, b []byte) bool { return bytes.Equal(own(a), own(b)) }
	said := func(f [][]byte) [][]byte {
		return slices.DeleteFunc(slices.Clone(f), func(f []byte) bool { return !isSaid(f) })
	}
	forwarded := func(f [][]byte) [][]byte { return slices.DeleteFunc(slices.Clone(f), isSaid) }
	return slices.EqualFunc(forwarded(a), forwarded(b), same) && slices.EqualFunc(said(a), said(b), same)
}

// isSaid reports whether a frame is a gateway's own: it has the hops that Linux begins with, which is more than what is
// forwarded has left.
func isSaid(f []byte) bool { return f[22] == 64 }

// lacks reports whether two arrivals differ in nothing but frames that only one has.
func (a arrival) lacks(b arrival) bool {
	return within(a.client, b.client) && within(a.server, b.server)
}

// within reports whether one list of frames is the other one without some.
func within(a, b [][]byte) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	for _, f := range b {
		if len(a) > 0 && bytes.Equal(own(a[0]), own(f)) {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// dropped reports whether links have dropped frames since the last call, which are missing among those that arrive.
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

// asMany reports whether as many frames arrived at each end: the kernels may have drawn other ports.
func (a arrival) asMany(b arrival) bool {
	return len(a.client) == len(b.client) && len(a.server) == len(b.server)
}

func (a arrival) String() string {
	return "at the client\n" + describe(a.client) + "at the server\n" + describe(a.server)
}

// compare sends frames, and reports what arrived in one world and not, or otherwise, in the other, but for source
// ports that the kernels drew. It returns what arrived in the plain one.
func (tw *twins) compare(t testing.TB, frames ...[]byte) arrival {
	t.Helper()
	cached, plain := tw.arrivals(t, frames...)
	if !cached.equal(plain) && !(tw.dropped(t) && cached.lacks(plain)) &&
		!(tw.drewPorts(t, cached.client, plain.client) && tw.drewPorts(t, cached.server, plain.server)) {
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
