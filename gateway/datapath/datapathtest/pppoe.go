package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// pppoeBehaviours are the behaviours of clients on PPPoE, who are treated like others. Alice is on PPPoE.
var pppoeBehaviours = []behaviour{
	{"PPPoEPacketsAreCounted", onPPPoE(packetsAreCounted), Shape{PPPoE: true}},
	{"PPPoEPacketsAreCountedBare", onPPPoE(packetsAreCounted), Shape{PPPoE: true, Bare: true}},
	{"PPPoEStreamsAreCounted", onPPPoE(streamsAreCounted), Shape{PPPoE: true}},
	{"PPPoEStreamsAreCountedBare", onPPPoE(streamsAreCounted), Shape{PPPoE: true, Bare: true}},
	{"PPPoEOfTheStack", onPPPoE(stackSendsPPPoE), Shape{PPPoE: true}},
	{"PPPoELowersMSS", onPPPoE(pppoeLowersMSS), Shape{PPPoE: true}},
	{"ForgedPPPoE", onPPPoE(forgedPPPoE), Shape{PPPoE: true}},
	{"PPPoEThroughTheGateway", onPPPoE(acrossPPPoE), Shape{PPPoE: true}},
	{"PPPoEOfOtherInterfaces", onPPPoE(otherInterfaces), Shape{PPPoE: true}},
	{"PPPoEBehindNAT", onPPPoE(pppoeBehindNAT), Shape{PPPoE: true}},
	{"PPPoEBehindNATBare", onPPPoE(pppoeBehindNAT), Shape{PPPoE: true, Bare: true}},
	{"NetworksBehindPPPoE", onPPPoE(networksBehind), Shape{PPPoE: true}},
	{"ClosedWithPPPoE", onPPPoE(func(t *testing.T, w *World) {
		w.outlives(t, "Close", func() { must(t, w.Close()) })
	}), Shape{PPPoE: true}},
	{"KilledWithPPPoE", onPPPoE(func(t *testing.T, w *World) {
		w.outlives(t, "kill -9", func() { w.Kill(t); time.Sleep(w.path.Lingers); w.Start(t) })
	}), Shape{PPPoE: true}},
}

// onPPPoE returns a check of paths that promise PPPoE, after which each frame that Alice got must have been right.
// Other paths must refuse a client on PPPoE.
func onPPPoE(check func(*testing.T, *World)) func(*testing.T, *World) {
	return func(t *testing.T, w *World) {
		if !w.path.PPPoE {
			if err := w.Set(w.Alice.client(admitted)); err == nil {
				t.Error("a data path without PPPoE accepts a client on PPPoE")
			}
			return
		}
		check(t, w)
		w.line.check(t)
	}
}

const (
	pppoeMTU      = datapath.PPPoEMTU
	sessionFrame  = 0x8864 // EtherType (RFC 2516, 4)
	sessionHeader = 14 + 6 + 2
	aliceSession  = 0x1234
	bobSession    = 0x2345
	virtioHeader  = 10 // struct virtio_net_hdr: [0] flags, [1] aggregation, [6:8] where a checksum starts
)

// pppoeClient carries a station's packets in frames of a PPPoE session, from and to the station's TUN device, line0.
// What it reads and writes at both has a virtio header, because links of a test leave checksums for the receiver.
type pppoeClient struct {
	session uint16
	mac     datapath.MAC
	tun     *os.File
	socket  int
	ended   atomic.Bool
	running sync.WaitGroup

	mu   sync.Mutex
	came int     // guarded by mu
	odd  []error // what was wrong with frames that came; guarded by mu
}

// newPPPoEClient moves a station's address to a PPPoE session; it ends with the test.
func newPPPoEClient(t testing.TB, s Station) *pppoeClient {
	t.Helper()
	l := &pppoeClient{session: s.Session, mac: s.MAC, socket: -1}
	var err error
	s.Do(func() { err = l.open() })
	must(t, err)
	s.Run(t, `ip addr flush dev c0; ip addr add $addr/32 dev line0; ip link set line0 up mtu $mtu; ip route add default dev line0 mtu $mtu`,
		"addr="+s.Addr.String(), fmt.Sprintf("mtu=%d", pppoeMTU))
	l.running.Go(l.send)
	l.running.Go(l.receive)
	t.Cleanup(func() {
		l.ended.Store(true)
		l.tun.Close()
		l.running.Wait()
		unix.Close(l.socket)
	})
	return l
}

func (l *pppoeClient) open() error {
	dev, err := net.InterfaceByName(clientLink)
	if err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq("line0")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := errors.Join(unix.IoctlIfreq(fd, unix.TUNSETIFF, req), unix.SetNonblock(fd, true)); err != nil {
		return err
	}
	l.tun = os.NewFile(uintptr(fd), "line0")
	const kind = sessionFrame>>8 | sessionFrame&0xff<<8
	if l.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, kind); err != nil {
		return err
	}
	patience := unix.NsecToTimeval((20 * time.Millisecond).Nanoseconds())
	return errors.Join(
		unix.SetsockoptInt(l.socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(l.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.SetsockoptTimeval(l.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.Bind(l.socket, &unix.SockaddrLinklayer{Protocol: kind, Ifindex: dev.Index}),
	)
}

// send puts the PPPoE header on packets that the station's kernel sends.
func (l *pppoeClient) send() {
	for b := make([]byte, 4096); ; {
		n, err := l.tun.Read(b)
		if err != nil {
			return
		}
		if n > virtioHeader && b[virtioHeader]>>4 == 4 {
			unix.Send(l.socket, append(make([]byte, virtioHeader), inSession(b[virtioHeader:n], l.mac, l.session)...), 0)
		}
	}
}

// inSession returns the frame of a session with an IP packet.
func inSession(ip []byte, from datapath.MAC, session uint16) []byte {
	f := append(append(LANMAC[:len(LANMAC):len(LANMAC)], from[:]...), sessionFrame>>8, sessionFrame&0xff, 0x11, 0)
	f = binary.BigEndian.AppendUint16(f, session)
	f = binary.BigEndian.AppendUint16(f, uint16(2+len(ip)))
	return append(append(f, 0, 0x21), ip...)
}

// onSession puts a plain frame's packet into a session's frame.
func onSession(frame []byte, session uint16) []byte {
	return inSession(frame[14:], datapath.MAC(frame[6:12]), session)
}

// receive takes the PPPoE header off received frames, and checks it.
func (l *pppoeClient) receive() {
	b := make([]byte, 1<<17)
	for !l.ended.Load() {
		n, _, err := unix.Recvfrom(l.socket, b, 0)
		if err != nil || n < virtioHeader+sessionHeader || datapath.MAC(b[virtioHeader:virtioHeader+6]) != l.mac {
			continue
		}
		ip, err := l.packet(b[virtioHeader:n])
		if b[1] != unix.VIRTIO_NET_HDR_GSO_NONE {
			err = errors.New("aggregated")
		}
		l.mu.Lock()
		l.came++
		if err != nil {
			l.odd = append(l.odd, fmt.Errorf("%w: %x", err, b[:min(n, 64)]))
		}
		l.mu.Unlock()
		if err == nil {
			sums := bytes.Clone(b[:virtioHeader])
			if start := binary.NativeEndian.Uint16(sums[6:]); start != 0 {
				binary.NativeEndian.PutUint16(sums[6:], start-sessionHeader)
			}
			l.tun.Write(append(sums, ip...))
		}
	}
}

// packet returns the packet in a frame to the PPPoE session.
func (l *pppoeClient) packet(b []byte) ([]byte, error) {
	if len(b) < sessionHeader+20 {
		return nil, errors.New("short")
	}
	length, total := int(binary.BigEndian.Uint16(b[18:])), int(binary.BigEndian.Uint16(b[24:]))
	switch {
	case datapath.MAC(b[6:12]) != LANMAC:
		return nil, errors.New("not from the gateway")
	case b[14] != 0x11 || b[15] != 0 || b[20] != 0 || b[21] != 0x21:
		return nil, errors.New("no data of IPv4")
	case binary.BigEndian.Uint16(b[16:]) != l.session:
		return nil, errors.New("of another session")
	case length != total+2 || total > pppoeMTU:
		return nil, fmt.Errorf("a length of %d for a packet of %d bytes", length, total)
	case len(b) != sessionHeader+total && len(b) > 60 || len(b) < sessionHeader+total:
		return nil, fmt.Errorf("%d bytes with a packet of %d", len(b), total)
	}
	return b[sessionHeader : sessionHeader+total], nil
}

// check fails the test if a frame that came was wrong, or none came.
func (l *pppoeClient) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.odd) > 0 || l.came == 0 {
		t.Errorf("%d frames came, of which %d are wrong: %v", l.came, len(l.odd), errors.Join(l.odd[:min(5, len(l.odd))]...))
	}
}

// stackSendsPPPoE: packets that the stack sends get the header too: the gateway's own packets, and fragments, also of
// packets that are longer than the PPPoE session allows.
func stackSendsPPPoE(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	says(t, w.Alice.Space, "ping -c 1 -W 5 10.1.0.1", "1 received")
	w.counts(t, w.Alice, tally{}, tally{})
	says(t, w.Alice.Space, "ping -c 1 -W 5 -s 4000 192.0.2.2", "1 received")
	says(t, w.Server, "ping -c 1 -W 5 -M dont -s 1472 "+w.Alice.Addr.String(), "1 received")
	says(t, w.Server, "ping -c 2 -W 2 -M do -s 1472 "+w.Alice.Addr.String(), "mtu")
}

// pppoeLowersMSS: ends that know nothing of the PPPoE session's MTU send segments that fit into it.
func pppoeLowersMSS(t *testing.T, w *World) {
	w.Alice.Run(t, plainTCP+"; ip link set line0 mtu 1500; ip route replace default dev line0")
	w.Server.Run(t, plainTCP)
	w.admit(t, w.Alice)
	x := w.NewStream(t, w.Alice, Server)
	x.Carry(t, x.Client, 10_000)
	x.Carry(t, x.Server, 10_000)
	for end, c := range map[string]*net.TCPConn{"client": x.Client, "server": x.Server} {
		if got := info(t, c).Snd_mss; got != pppoeMTU-40 {
			t.Errorf("the %s sends segments of %d bytes", end, got)
		}
	}
}

// forgedPPPoE: packets with a client's address pass only in the client's session and from its MAC address, and frames
// with wrong lengths are dropped. Long: the steps of one run, each of which needs the state that the one before left.
func forgedPPPoE(t *testing.T, w *World) {
	w.admit(t, w.Alice, w.Bob)
	up := w.Up(t, w.Alice)
	up.Begin()
	up.Passes(t, "in the PPPoE session")
	server := NewWire(t, w.Server, serverLink)
	lan := NewWire(t, w.Intruder.Space, clientLink)
	packet := func() []byte { return Reset("forged", By(w.Alice)) }
	// changed returns a frame of the session with bytes at an index: 14 version and type, 15 code, 18 length, 20 PPP's
	// protocol.
	changed := func(index int, to ...byte) []byte {
		b := onSession(packet(), aliceSession)
		copy(b[index:], to)
		return b
	}
	before := w.Packets(t)
	wrong := [][]byte{
		packet(), // without a PPPoE session
		onSession(packet(), aliceSession+1),
		onSession(packet(), 0),
		onSession(Reset("forged", From(w.Alice.Addr, w.Intruder.MAC)), aliceSession),
		onSession(Reset("forged", By(w.Bob)), aliceSession), // is not on PPPoE
		onSession(Reset("forged", From(w.Bob.Addr, w.Alice.MAC)), aliceSession),
	}
	malformed := [][]byte{
		changed(18, 0xff, 0xff), changed(18, 0, 40), changed(18, 0, 0), changed(18, 0, 21),
		onSession(packet(), aliceSession)[:sessionHeader+30],
	}
	lan.Send(t, wrong...)
	lan.Send(t, malformed...)
	lan.Send(t, onSession(Reset("forged", From(netip.MustParseAddr("203.0.113.9"), w.Alice.MAC)), aliceSession))
	if !w.path.PPPoEOnly {
		lan.Send(t, changed(14, 0x21), changed(15, 0xa7))
	}
	lan.Send(t, changed(20, 0xc0, 0x21), changed(20, 0, 0x57), onSession(packet(), aliceSession)[:16])
	netnstest.Await(t, "counts of what was forged", func() error {
		now := w.Packets(t)
		if w.path.PPPoEOnly { // counts only frames of a PPPoE session
			if n := now["wrong-mac"] - before["wrong-mac"]; n < 2 {
				return fmt.Errorf("%d of 2", n)
			}
			return nil
		}
		if n, m := now["wrong-mac"]-before["wrong-mac"], now["malformed"]-before["malformed"]; n < uint64(len(wrong)-1) ||
			m < uint64(len(malformed)) {
			return fmt.Errorf("%d of %d, %d of %d malformed", n, len(wrong), m, len(malformed))
		}
		return nil
	})
	lan.Send(t, onSession(Reset("honest", By(w.Alice)), aliceSession),
		append(onSession(Reset("padded", By(w.Alice)), aliceSession), 0, 0, 0))
	server.await(t, 0, "honest")
	server.await(t, 0, "padded")
	if n := holding(server.Frames(), "forged"); n > 0 {
		t.Errorf("%d forged packets passed", n)
	}
	up.Passes(t, "after what was forged")
	says(t, w.Alice.Space, "ping -c 1 -W 5 192.0.2.2", "1 received")
}

// acrossPPPoE: clients on PPPoE and others reach each other through the gateway.
func acrossPPPoE(t *testing.T, w *World) {
	if w.path.PPPoEOnly {
		w.Bob.Session = bobSession
		newPPPoEClient(t, w.Bob)
	} else {
		w.Bob.Run(t, "sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.c0.accept_redirects=0; ip route add "+
			w.Alice.Addr.String()+" via 10.1.0.1")
	}
	w.admit(t, w.Alice, w.Bob)
	for _, s := range []struct{ from, to Station }{{w.Alice, w.Bob}, {w.Bob, w.Alice}} {
		flow := NewFlow(t, s.from.Space, s.from.Addr, s.to.Space, s.to.Addr)
		flow.Begin()
		flow.Passes(t, "from "+s.from.Addr.String())
		flow.Halt()
	}
	l := listen(t, w.Bob.Space, netip.AddrPortFrom(w.Bob.Addr, 0))
	c, err := dial(w.Alice.Space, w.Alice.Addr, netip.MustParseAddrPort(l.Addr().String()))
	must(t, err)
	c.Close()
}
