// Tests of frames with VLAN tags at sinks. newWire makes a generator, a bridge and a monitor with links; start runs a
// sink, a program that captures frames and counts them, as a process (main_test.go).

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

// ipv4 makes an IPv4 packet of so many bytes, to an address that no host has.
func ipv4(bytes int) []byte {
	packet := make([]byte, bytes)
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(packet[2:], uint16(bytes))
	copy(packet[12:], []byte{192, 168, 0, 1, 192, 168, 0, 2})
	var sum uint32
	for index := 0; index < 20; index += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[index:]))
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum+sum>>16)) // a bridge drops packets with a wrong checksum
	return packet
}

// ethernetOf makes a frame of an EtherType with VLAN tags, the outer one first. Each tag is given as two numbers: its
// EtherType, and its tag control information (priority and VLAN).
func ethernetOf(kind uint16, payload []byte, tags ...[2]uint16) []byte {
	frame := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for _, tag := range tags {
		frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, tag[0]), tag[1])
	}
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

// sendRaw sends frames from an interface of a namespace.
func sendRaw(t *testing.T, space *netnstest.Space, name string, frames [][]byte) {
	t.Helper()
	var err error
	space.Do(func() {
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
		for _, frame := range frames {
			if err == nil {
				err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: target.index})
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	vlan100 = [2]uint16{unix.ETH_P_8021Q, 100}
	qinq    = [][2]uint16{{unix.ETH_P_8021AD, 100}, {unix.ETH_P_8021Q, 101}} // two tags (IEEE 802.1ad)
	// taggedFrames are frames with and without tags, of IPv4 and of an unknown protocol.
	taggedFrames = [][]byte{
		ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(0x88b5, make([]byte, 86)),
		ethernetOf(unix.ETH_P_IP, ipv4(46), vlan100), ethernetOf(unix.ETH_P_IP, ipv4(1500), vlan100),
		ethernetOf(unix.ETH_P_IP, ipv4(46), [2]uint16{unix.ETH_P_8021Q, 7 << 13}), // a priority and no VLAN
		ethernetOf(unix.ETH_P_IP, ipv4(100), qinq...), ethernetOf(0x88b5, make([]byte, 200), qinq...),
		ethernetOf(unix.ETH_P_IP, ipv4(300), vlan100, vlan100, vlan100),
	}
)

// TestTagsCount: sinks of every kind count frames by length, and the length of a frame includes all VLAN tags, as in
// tcpdump, also the outer one, which the kernel removes from incoming frames. A frame of a protocol that the kernel
// does not know does not count as lost.
func TestTagsCount(t *testing.T) {
	wire := newWire(t)
	want := map[int]int64{}
	for _, frame := range taggedFrames {
		want[len(frame)]++
	}
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, launch(t, wire.monitor, Config{Kind: kind, Interface: "s0"}))
			if kind != "xdp" {
				running = append(running, launch(t, wire.generator, Config{Kind: kind, Interface: "g0"}))
			}
		}
		for _, program := range running {
			program.ready(t)
		}
		came := wire.framesSeen(t)
		sendRaw(t, wire.generator, "g0", taggedFrames)

		labtest.Await(t, "the monitor to see all frames", func() bool { return wire.framesSeen(t)-came == totalFrames(want) })
		for _, program := range running {
			if counts := program.endAndCount(t); !maps.Equal(counts.Sizes, want) || counts.Dropped != 0 ||
				counts.IfDropped != 0 {
				t.Errorf("%s counts %+v, want %v", program.name, counts, want)
			}
		}
	}
}

// TestVLANTagsBesideFrames: a VLAN interface's tag does not stand in the frame but in its metadata, in which it also
// crosses a link of the same machine. Sinks count the tag's bytes. An eBPF program adds such a tag here.
func TestVLANTagsBesideFrames(t *testing.T) {
	wire := newWire(t)
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(networkOrder(unix.ETH_P_8021Q))), asm.Mov.Imm(asm.R3, 5), asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	var attachment hook.Attachment
	wire.bridge.Do(func() {
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
	want := map[int]int64{64: 1, 1518: 1, 122: 1} // frames by length: each 4 bytes longer than it is sent
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, start(t, wire.monitor, Config{Kind: kind, Interface: "s0"}))
		}
		came := wire.framesSeen(t)
		sendRaw(t, wire.generator, "g0", [][]byte{ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(unix.ETH_P_IP, ipv4(1500)),
			ethernetOf(unix.ETH_P_IP, ipv4(100), vlan100)})

		labtest.Await(t, "the monitor to see all frames", func() bool { return wire.framesSeen(t)-came == totalFrames(want) })
		for _, program := range running {
			if counts := program.endAndCount(t); !maps.Equal(counts.Sizes, want) || counts.Dropped != 0 {
				t.Errorf("%s counts %+v, want %v", program.name, counts, want)
			}
		}
	}
}

// TestLoopback: a frame on the loopback interface, which sends and receives it, counts once.
func TestLoopback(t *testing.T) {
	space := netnstest.NewSpace(t)
	space.Run(t, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
	space.Run(t, "ip link set lo mtu 1500")
	frames := [][]byte{ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(unix.ETH_P_IP, ipv4(46)), ethernetOf(0x88b5, make(
		[]byte, 86)), ethernetOf(unix.ETH_P_IP, ipv4(1000), vlan100)}
	want := map[int]int64{60: 2, 100: 1, 1018: 1}
	for _, kinds := range [][]string{{"recv", "mmap", "ebpf"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, start(t, space, Config{Kind: kind, Interface: "lo"}))
		}
		before := counter64(t, space, "lo", "rx_packets")
		sendRaw(t, space, "lo", frames)
		labtest.Await(t, "the frames to pass",
			func() bool { return counter64(t, space, "lo", "rx_packets")-before >= int64(len(frames)) })
		for _, program := range running {
			if counts := program.endAndCount(t); !maps.Equal(counts.Sizes, want) || counts.Frames != 4 || counts.Dropped != 0 {
				t.Errorf("%s counts %+v, want %v", program.name, counts, want)
			}
		}
	}
}
