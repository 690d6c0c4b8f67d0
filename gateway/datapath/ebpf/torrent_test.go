// A test of losses at a high rate. twins are two gateways between wires, one with the cache of flows and one without,
// to which a test sends the same frames (twins_test.go). A flow is a connection that makes its packets with fromClient
// and fromPeer (flow_test.go). A torrent is the load of one of them, sent by bursts (volley).

package ebpf

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var triggerMbps = flag.Float64(
	"trigger.mbps", 50, "Mbit/s that TestNoLossAtRate sends through each of two gateways, if the machine can")

const (
	segment     = 1460 // bytes of payload: packets of 1500
	segments    = 40   // that one system call sends
	frameBits   = (segment + 54) * 8
	longestWait = 8 // bursts that a late sender sends at once, at most: the queue of a CPU holds 1000 frames
)

// volley is a burst of segments that a sender writes by one system call. The kernel splits it at the sender's own link,
// so each segment crosses the network alone.
type volley struct {
	fd     int
	frame  []byte // follows struct virtio_net_hdr
	answer int    // the packet socket of the other side
	ack    []byte // the other side's answer, because connection tracking must see both directions
	sent   atomic.Uint64
}

const vnetHeader = 10

// newVolley returns a burst of a flow, which fd sends and answer acknowledges.
func newVolley(fd, answer int, frame, ack []byte) *volley {
	pseudo := uint32(unix.IPPROTO_TCP + len(frame) - 34) // the kernel completes the checksum of each segment
	for i := 26; i < 34; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	pseudo = pseudo&0xffff + pseudo>>16
	binary.BigEndian.PutUint16(frame[50:], uint16(pseudo&0xffff+pseudo>>16))
	h := make([]byte, vnetHeader, vnetHeader+len(frame))
	h[0], h[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_TCPV4
	// Lengths of header and segment; where the checksum's data begins, and the offset of its field.
	for i, v := range []uint16{54, segment, 34, 16} {
		binary.NativeEndian.PutUint16(h[2+2*i:], v)
	}
	return &volley{fd: fd, frame: append(h, frame...), answer: answer, ack: append(make([]byte, vnetHeader), ack...)}
}

func (b *volley) send() error {
	if err := write(b.fd, b.frame); err != nil {
		return err
	}
	b.sent.Add(segments)
	seq := b.frame[vnetHeader+38:]
	binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+segments*segment)
	return write(b.answer, b.ack)
}

// write sends a frame. It is no error if the link drops the frame because a CPU's queue is full: the link counts that.
func write(fd int, frame []byte) error {
	if _, err := unix.Write(fd, frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("sending %d bytes: %w", len(frame), err)
	}
	return nil
}

// torrent is the load of one of the twins (twins_test.go): a translated flow up from alice, and a flow down to bob that
// is not translated. The receivers are rules of nftables that count, so that the test itself loses no frame.
type torrent struct {
	*twin
	alice, bob, server int // packet sockets
	up, down           *volley
}

// sendSocket opens a packet socket that sends with struct virtio_net_hdr and receives nothing.
func sendSocket(t *testing.T, s *netnstest.Space, link string) (fd int) {
	t.Helper()
	s.Run(t, "ethtool -K "+link+" tso off")
	var err error
	s.Do(func() {
		var dev *net.Interface
		if dev, err = net.InterfaceByName(link); err != nil {
			return
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1), unix.Bind(fd,
			&unix.SockaddrLinklayer{Ifindex: dev.Index}))
	})
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// torrents are the loads of both twins.
type torrents struct {
	tw      *twins
	of      [2]*torrent
	active  time.Duration // how long they have been sending
	end     chan struct{}
	running sync.WaitGroup
	failed  atomic.Pointer[error]
	began   time.Time
}

// torrentRules are the rules of both twins. The rule at input keeps the gateway's own stack from entering a connection
// that was forgotten, when a server sends in it: because of that entry the client's connection would get another port.
const torrentRules = `table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 ip saddr 10.1.0.10 meta l4proto tcp masquerade
}
chain forward { type filter hook forward priority 0; ct state established accept
}
chain own { type filter hook input priority 0; meta l4proto tcp drop
}
}`

func newTorrents(t *testing.T) *torrents {
	x := &torrents{tw: newTwins(t)}
	for i, w := range []*twin{x.tw.cached, x.tw.plain} {
		w.Router.Run(t, "ip link set wan0 mtu 1500")
		w.Intruder.Run(t, "ip link set c0 down") // the hub copies each frame to one machine less
		w.client.Ignore(t, 600)
		w.server.Ignore(t, 600)
		x.of[i] = &torrent{twin: w, alice: sendSocket(t, w.Alice.Space, "c0"), bob: sendSocket(t, w.Bob.Space, "c0"),
			server: sendSocket(t, w.Server, "s0")}
	}
	x.tw.rules(t, "round1", torrentRules)
	x.begin(t)
	return x
}

// begin begins two flows, and sets the counters of arrived frames to 0.
func (x *torrents) begin(t *testing.T) {
	t.Helper()
	// answers of earlier flows
	x.tw.each(func(w *twin) { w.clientSeen, w.serverSeen = len(w.client.Frames()), len(w.server.Frames()) })
	alicesFlow, bobsFlow := begin(t, x.tw, alice), begin(t, x.tw, bob)
	x.tw.makeCached(t, alicesFlow.fromClient(), alicesFlow.fromPeer(), bobsFlow.fromClient(), bobsFlow.fromPeer())
	data, none := datapathtest.Carrying(make([]byte, segments*segment)), datapathtest.Carrying(nil)
	for _, o := range x.of {
		o.up = newVolley(o.alice, o.server, alicesFlow.fromClient(data), alicesFlow.fromPeer(none))
		o.down = newVolley(o.server, o.bob, bobsFlow.fromPeer(data), bobsFlow.fromClient(none))
		tell := `nft 'table ip tell; delete table ip tell; table ip tell { counter data { }; chain in { type filter hook prerouting priority -450; ip length 1500 %s counter name data; }; }'`
		o.Server.Run(t, fmt.Sprintf(
			tell, fmt.Sprintf("ip saddr %v tcp sport %d", alicesFlow.seen.Addr(), alicesFlow.seen.Port())))
		o.Bob.Run(t, fmt.Sprintf(
			tell, fmt.Sprintf("ip daddr %v tcp dport %d", bobsFlow.client.Addr(), bobsFlow.client.Port())))
	}
}

// arrived returns how many whole segments of the flows have arrived with the right addresses and ports.
func (o *torrent) arrived(t *testing.T) (up, down uint64) {
	t.Helper()
	for s, n := range map[*netnstest.Space]*uint64{o.Server: &up, o.Bob.Space: &down} {
		_, err := fmt.Sscan(s.Run(t, `nft list counter ip tell data | sed -n 's/.*packets \([0-9]*\) .*/\1/p'`), n)
		must(t, err)
	}
	return up, down
}

// start sends through both gateways until stop.
func (x *torrents) start() {
	x.end, x.began = make(chan struct{}), time.Now()
	for _, o := range x.of {
		x.running.Go(func() {
			if err := o.run(x.end); err != nil {
				x.failed.Store(&err)
			}
		})
	}
}

// run sends at the rate, or as fast as it can.
func (o *torrent) run(end <-chan struct{}) error {
	began, sent, each := time.Now(), 0, time.Duration(segments*frameBits / *triggerMbps * float64(time.Microsecond))
	for {
		select {
		case <-end:
			return nil
		default:
		}
		due := int(time.Since(began)/each) - sent
		sent += max(0, due-longestWait) // too late: left out
		for range min(due, longestWait) {
			b := o.up
			if sent%2 == 1 {
				b = o.down
			}
			if err := b.send(); err != nil {
				return err
			}
			sent++
		}
		time.Sleep(each / 2)
	}
}

func (x *torrents) sent() (n uint64) {
	for _, o := range x.of {
		n += o.up.sent.Load() + o.down.sent.Load()
	}
	return n
}

// stop ends the sending.
func (x *torrents) stop(t *testing.T) {
	t.Helper()
	close(x.end)
	x.running.Wait()
	x.active += time.Since(x.began)
	if err := x.failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// whole stops sending and waits until no frame is missing: each has arrived, or a link has dropped it because its queue
// was full.
func (x *torrents) whole(t *testing.T, during string, before [2]uint64) {
	t.Helper()
	x.stop(t)
	for i, o := range x.of {
		sentUp, sentDown := o.up.sent.Load(), o.down.sent.Load()
		netnstest.Await(t, "all frames", func() error {
			up, down := o.arrived(t)
			dropped := o.LinkDrops(t) - before[i]
			if up > sentUp || down > sentDown || up+down+dropped < sentUp+sentDown {
				return fmt.Errorf("%s, %s: of %d frames up and %d down %d and %d arrived, and links dropped %d",
					[]string{"with the cache", "without"}[i], during, sentUp, sentDown, up, down, dropped)
			}
			if dropped > 0 {
				t.Logf("%s: links dropped %d of %d frames", during, dropped, sentUp+sentDown)
			}
			return nil
		})
	}
}

func (x *torrents) drops(t *testing.T) (n [2]uint64) {
	for i, o := range x.of {
		n[i] = o.LinkDrops(t)
	}
	return n
}

// more waits until so many further frames have been sent through each gateway.
func (x *torrents) more(t *testing.T, frames uint64) {
	t.Helper()
	for _, o := range x.of {
		for _, b := range []*volley{o.up, o.down} {
			from := b.sent.Load()
			netnstest.Await(t, "frames", func() error {
				if b.sent.Load()-from < frames && x.failed.Load() == nil {
					return errors.New("the senders wait")
				}
				return nil
			})
		}
	}
}

// untilCached waits until the cache forwards the flows.
func (x *torrents) untilCached(t *testing.T) {
	t.Helper()
	netnstest.Await(t, "flow cache", func() error {
		before := x.tw.cached.Packets(t)
		x.more(t, segments)
		n := x.tw.cached.Packets(t)
		if cached, stack := n["forwarded"]-before["forwarded"], n["stack"]-before["stack"]; cached <= stack {
			word, reason := x.tw.cached.ForwardingWhy(t)
			return fmt.Errorf("%d packets by it, %d by the stack; %s: %s", cached, stack, word, reason)
		}
		return nil
	})
}

// TestNoLossAtRate: at a high rate, no event makes a gateway with the cache lose a frame that the stack would have
// forwarded, and after an event that ends a flow no frame of it passes. The rate that the machine reached is logged;
// for 1 Gbit/s run it with -args -trigger.mbps 1000.
func TestNoLossAtRate(t *testing.T) {
	t.Parallel()
	x := newTorrents(t)
	x.nothingLost(t)
	x.nothingPasses(t)
}

// nothingLost checks that none of several events loses a packet of the flows. Long: the steps of one run, each of which
// needs the state that the one before left.
func (x *torrents) nothingLost(t *testing.T) {
	cached := x.tw.cached
	admit := func() {
		must(t, cached.Open())
		for _, s := range []datapathtest.Station{cached.Alice, cached.Bob} {
			must(t, cached.Set(datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Admitted: true}))
		}
	}
	before, counts, sent := x.drops(t), cached.Packets(t), x.sent()
	for _, c := range []struct {
		name   string
		action func()
	}{
		{"nothing", func() {}},
		{"others' rules", func() {
			x.tw.each(func(w *twin) {
				w.Router.Run(t, `nft add table ip other; nft add chain ip other f '{ type filter hook forward priority 5; }'; nft add rule ip other f ip saddr 10.9.9.9 drop; nft delete table ip other`)
			})
		}},
		{"ip rule add", func() {
			x.tw.each(func(w *twin) {
				w.Router.Run(t, `ip rule add from 10.9.9.9 prohibit; ip rule del from 10.9.9.9 prohibit; ip route add 203.0.113.0/24 via 192.0.2.2; ip route del 203.0.113.0/24`)
			})
		}},
		{"conntrack -F", func() {
			for range 3 {
				x.tw.each(func(w *twin) {
					var err error
					w.Router.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
					must(t, err)
				})
				x.untilCached(t)
			}
		}},
		{"kill -9", func() { must(t, cached.Restart()); admit() }},
		{"a restart", func() { must(t, cached.Close()); admit() }},
	} {
		x.start()
		x.untilCached(t)
		c.action()
		time.Sleep(*loadFor / 5)
		x.untilCached(t)
		x.whole(t, c.name, before)
	}
	n := cached.Packets(t)
	frames := x.sent() - sent
	t.Logf("%d frames of 1500 bytes in %.1f s: %.0f Mbit/s through each of two gateways; of the cached one's %d by the "+
		"cache, %d by the stack",
		frames, x.active.Seconds(), float64(frames)*frameBits/2/x.active.Seconds()/1e6, n["forwarded"]-counts["forwarded"],
		n["stack"]-counts["stack"])
}

// nothingPasses checks for several events that end a flow that no packet of it passes afterwards. Long: the steps of
// one run, each of which needs the state that the one before left.
func (x *torrents) nothingPasses(t *testing.T) {
	for _, c := range []struct {
		name, script, undo string
		down               bool // ends the flow down
	}{
		{"ip rule add", "ip rule add from 10.1.0.10 ipproto tcp prohibit", "ip rule del from 10.1.0.10 ipproto tcp prohibit",
			false},
		{"nft insert rule", "nft insert rule ip round1 forward ip daddr 10.1.0.11 drop", "nft flush chain ip round1 forward",
			true},
		{"nft flush ruleset", "nft flush ruleset", "nft '" + torrentRules + "'", false},
	} {
		arrived := func(o *torrent) uint64 {
			up, down := o.arrived(t)
			if c.down {
				return down
			}
			return up
		}
		x.start()
		x.untilCached(t)
		var ended, sent [2]uint64
		for i, o := range x.of {
			o.Router.Run(t, c.script)
			if sent[i] = o.up.sent.Load(); c.down {
				sent[i] = o.down.sent.Load()
			}
		}
		for i, o := range x.of {
			netnstest.Await(t, c.name+" to count", func() error {
				before := arrived(o)
				x.more(t, segments)
				if ended[i] = arrived(o); ended[i] != before {
					return fmt.Errorf("%d frames passed", ended[i]-before)
				}
				return nil
			})
			t.Logf("%s, %s: %d frames passed since it was done", []string{"with the cache", "without"}[i], c.name,
				max(ended[i], sent[i])-sent[i])
		}
		time.Sleep(*loadFor / 5)
		x.more(t, segments)
		for i, o := range x.of {
			if n := arrived(o) - ended[i]; n > 0 {
				t.Errorf("%s, %s: %d frames passed that rules do not let pass", []string{"with the cache", "without"}[i], c.name, n)
			}
		}
		x.stop(t)
		x.tw.each(func(w *twin) { w.Router.Run(t, c.undo) })
		becomes(t, x.tw.cached.World, "flow cache", "round1")
		x.begin(t)
	}
}
