package sink

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/hook"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// ipv4 is an IPv4 packet of so many bytes that nobody takes.
func ipv4(bytes int) []byte {
	p := make([]byte, bytes)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(bytes))
	copy(p[12:], []byte{192, 168, 0, 1, 192, 168, 0, 2})
	var sum uint32
	for index := 0; index < 20; index += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[index:]))
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16)) // a bridge drops what has another
	return p
}

// ethernetOf is a frame with VLAN tags, the outer one first, each of a type and a number.
func ethernetOf(kind uint16, payload []byte, tags ...[2]uint16) []byte {
	f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, tag[0]), tag[1])
	}
	return append(binary.BigEndian.AppendUint16(f, kind), payload...)
}

// sendRaw sends frames from an interface of a namespace.
func sendRaw(t *testing.T, s *netnstest.Space, name string, frames [][]byte) {
	t.Helper()
	var err error
	s.Do(func() {
		var target port
		if target, err = findPort(name); err != nil {
			return
		}
		target.ns.Close()
		var fd int
		if fd, err = newSocket(unix.AF_PACKET); err != nil {
			return
		}
		defer unix.Close(fd)
		for _, f := range frames {
			if err == nil {
				err = unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: target.index})
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	vlan100 = [2]uint16{unix.ETH_P_8021Q, 100}
	qinq    = [][2]uint16{{unix.ETH_P_8021AD, 100}, {unix.ETH_P_8021Q, 101}}
	// tagged are frames with and without tags, of protocols that are spoken and others.
	tagged = [][]byte{
		ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(0x88b5, make([]byte, 86)),
		ethernetOf(unix.ETH_P_IP, ipv4(46), vlan100), ethernetOf(unix.ETH_P_IP, ipv4(1500), vlan100),
		ethernetOf(unix.ETH_P_IP, ipv4(46), [2]uint16{unix.ETH_P_8021Q, 7 << 13}), // of priority alone
		ethernetOf(unix.ETH_P_IP, ipv4(100), qinq...), ethernetOf(0x88b5, make([]byte, 200), qinq...),
		ethernetOf(unix.ETH_P_IP, ipv4(300), vlan100, vlan100, vlan100),
	}
)

// TestTagsCount: frames count with all of their VLAN tags, as tcpdump counts them: the kernel takes the outer one out
// of frames that come. Frames that nobody takes are no losses.
func TestTagsCount(t *testing.T) {
	w := newWire(t)
	want := map[int]int64{}
	for _, f := range tagged {
		want[len(f)]++
	}
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, launch(t, w.monitor, Config{Kind: kind, Interface: "s0"}))
			if kind != "xdp" {
				running = append(running, launch(t, w.generator, Config{Kind: kind, Interface: "g0"}))
			}
		}
		for _, p := range running {
			p.ready(t)
		}
		came := w.arrived(t)
		sendRaw(t, w.generator, "g0", tagged)

		labtest.Await(t, "the monitor to see all frames", func() bool { return w.arrived(t)-came == totalFrames(want) })
		for _, p := range running {
			if n := p.endAndCount(t); !maps.Equal(n.Sizes, want) || n.Dropped != 0 || n.IfDropped != 0 {
				t.Errorf("%s counts %+v, want %v", p.name, n, want)
			}
		}
	}
}

// TestVLANTagsBesideFrames: a tag that the sender's kernel keeps beside the frame, as an interface of a VLAN has it,
// crosses a link beside it too.
func TestVLANTagsBesideFrames(t *testing.T) {
	w := newWire(t)
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(networkOrder(unix.ETH_P_8021Q))), asm.Mov.Imm(asm.R3, 5), asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	var attachment hook.Attachment
	w.bridge.Do(func() {
		var out port
		if out, err = findPort("out0"); err == nil {
			out.ns.Close()
			attachment, err = hook.Attach(hook.Config{Interface: out.index, Name: "push", Handle: 1, Egress: true}, push)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer attachment.Close()
	want := map[int]int64{64: 1, 1518: 1, 122: 1}
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, start(t, w.monitor, Config{Kind: kind, Interface: "s0"}))
		}
		came := w.arrived(t)
		sendRaw(t, w.generator, "g0", [][]byte{ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(unix.ETH_P_IP, ipv4(1500)),
			ethernetOf(unix.ETH_P_IP, ipv4(100), vlan100)})

		labtest.Await(t, "the monitor to see all frames", func() bool { return w.arrived(t)-came == totalFrames(want) })
		for _, p := range running {
			if n := p.endAndCount(t); !maps.Equal(n.Sizes, want) || n.Dropped != 0 {
				t.Errorf("%s counts %+v, want %v", p.name, n, want)
			}
		}
	}
}

// TestLoopback: what a machine sends to itself passes the interface once.
func TestLoopback(t *testing.T) {
	s := netnstest.NewSpace(t)
	s.Run(t, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
	s.Run(t, "ip link set lo mtu 1500")
	frames := [][]byte{ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(0x88b5, make(
		[]byte, 86)), ethernetOf(unix.ETH_P_IP, ipv4(1000), vlan100)}
	want := map[int]int64{60: 2, 100: 1, 1018: 1}
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, start(t, s, Config{Kind: kind, Interface: "lo"}))
		}
		before := counter64(t, s, "lo", "rx_packets")
		sendRaw(t, s, "lo", frames)
		labtest.Await(t, "the frames to pass",
			func() bool { return counter64(t, s, "lo", "rx_packets")-before >= int64(len(frames)) })
		for _, p := range running {
			if n := p.endAndCount(t); !maps.Equal(n.Sizes, want) || n.Frames != 4 || n.Dropped != 0 {
				t.Errorf("%s counts %+v, want %v", p.name, n, want)
			}
		}
	}
}
