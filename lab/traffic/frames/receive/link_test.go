package receive

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/hook"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// The tests of this file send frames over a link and receive them with the eBPF program at its other end. One link,
// gwt0 (client) to gwt1 (server), serves all of them (TestReceiverOnLink). clsact means that the program is attached as
// on kernels before 6.6.

// receiveOnEnv is an environment variable with an interface. With it the test binary receives there until it is killed.
const receiveOnEnv = "GATEWEIGH_TEST_RECEIVE_ON"

// receiving is the receiver of such a process. A variable of main's alone would end with its last use, and Go, when it
// collects the receiver, would take its program from the interface.
var receiving *Receiver

// TestMain makes the test binary a receiver when receiveOnEnv is set. Otherwise it runs the tests.
func TestMain(m *testing.M) {
	if name := os.Getenv(receiveOnEnv); name != "" {
		var err error
		receiving, err = Open(Config{Interface: name})
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
}

// sender sends whole frames, without changing them, over a packet socket.
type sender struct {
	t  testing.TB
	fd int
}

// newSender returns a sender on the interface name in a namespace.
func newSender(t testing.TB, on *netnstest.Space, name string) *sender {
	t.Helper()
	s := &sender{t: t}
	var err error
	on.Do(func() {
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return
		}
		var ifi *net.Interface
		if ifi, err = net.InterfaceByName(name); err == nil {
			err = unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: ifi.Index})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func (s *sender) send(frame []byte) {
	s.t.Helper()
	if _, err := unix.Write(s.fd, frame); err != nil {
		s.t.Fatal(err)
	}
}

// now reads the clock of the frames' stamps, ns.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails
	return ts.Nano()
}

// open opens a receiver in a namespace, on gwt1 unless cfg names another interface.
func open(t testing.TB, in *netnstest.Space, cfg Config) *Receiver {
	t.Helper()
	if cfg.Interface == "" {
		cfg.Interface = "gwt1"
	}
	var r *Receiver
	var err error
	in.Do(func() { r, err = Open(cfg) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

// awaitFrames waits until n frames have been counted, with duplicates and strays.
func awaitFrames(t testing.TB, r *Receiver, n uint64) Received {
	t.Helper()
	var got Received
	labtest.Await(t, fmt.Sprintf("%d frames", n), func() bool {
		got = stats(t, r)
		return got.Frames+got.Stray >= n
	})
	return got
}

// TestReceiverOnLink runs all tests that need a link on one link.
func TestReceiverOnLink(t *testing.T) {
	p := labtest.NewPair(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, labtest.Pair)
	}{
		{"injected faults", injectedFaults}, {"each frame", eachFrame}, {"what passes on", checkOthersPass},
		{"ahead of other programs", checkFirstInOrder}, {"nothing stays behind", checkNothingLeft}, {"bad links", badLinks},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, p) })
	}
}

// eachFrame sends frames of many sizes over a link whose receiving end aggregates packets (GRO), and over a plain one.
// It sends chunks that fit the link's ring. Each frame must be counted once, with its size.
func eachFrame(t *testing.T, p labtest.Pair) {
	p.Client.Run(t, "ip link set gwt0 mtu 9000")
	p.Server.Run(t, "ip link set gwt1 mtu 9000")
	p.Client.Run(t, "ip link add plain0 up type veth peer name plain1")
	p.Client.Run(t, "ip link set plain1 up")
	p.Client.Run(t, `until ip link show plain0 | grep -q "state UP"; do sleep 0.01; done`)
	for _, l := range []struct {
		name     string
		in       *netnstest.Space
		from, to string
		most     int
	}{{"aggregating", p.Server, "gwt0", "gwt1", frames.MaxBytes}, {"plain", p.Client, "plain0", "plain1", 1514}} {
		t.Run(l.name, func(t *testing.T) {
			r := open(t, l.in, Config{Interface: l.to, Streams: 2})
			s := newSender(t, p.Client, l.from)
			sizes, bytes := map[int]uint64{}, uint64(0)
			chance := rand.New(rand.NewPCG(1, 1))
			for i := range uint64(1000) {
				size := []int{60, 61, 590, 1514, l.most, 60 + chance.IntN(l.most-59)}[chance.IntN(6)]
				s.send(frame(size, frames.Stamp{Stream: uint16(i % 2), Number: i / 2, SentNs: now()}))
				sizes[size]++
				bytes += uint64(size)
				if i%100 == 99 {
					awaitFrames(t, r, i+1)
				}
			}
			got := stats(t, r)
			if got.Frames != 1000 || got.Bytes != bytes || got.Lost(1000) != 0 ||
				got.Missing+got.Duplicates+got.Reordered+got.Merged+got.Stray+got.Early != 0 {
				t.Errorf("counts %+v, want 1000 frames of %d bytes", withoutZeros(got), bytes)
			}
			if fmt.Sprint(got.Sizes) != fmt.Sprint(sizes) {
				t.Errorf("sizes %v, want %v", got.Sizes, sizes)
			}
			if got.Streams[0].Frames != 500 || got.Streams[1].Frames != 500 || got.Delay.Frames != 1000 || got.Delay.MinNs == 0 {
				t.Errorf("streams %+v, delays from %d ns", got.Streams, got.Delay.MinNs)
			}
		})
	}
}

// checkOthersPass requires that the generator's frames reach no socket, and that other packets reach theirs.
func checkOthersPass(t *testing.T, p labtest.Pair) {
	for _, clsact := range []bool{false, true} {
		t.Run(fmt.Sprintf("clsact %v", clsact), func(t *testing.T) {
			r := open(t, p.Server, Config{clsact: clsact})
			var ears [2]*net.UDPConn // sockets at the frames' port, and at the port after it
			var err error
			p.Server.Do(func() {
				for i := range ears {
					ears[i], err = net.ListenUDP("udp4", &net.UDPAddr{Port: frames.Port + i})
					if err != nil {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer ears[0].Close()
			defer ears[1].Close()
			say := func(port int, text string) {
				p.Client.Do(func() {
					var c net.Conn
					if c, err = net.Dial("udp4", netip.AddrPortFrom(labtest.ServerIP, uint16(port)).String()); err == nil {
						_, err = c.Write([]byte(text))
						c.Close()
					}
				})
				if err != nil {
					t.Error(err)
				}
			}
			stamp := make([]byte, frames.StampBytes)
			frames.Stamp{SentNs: now()}.Put(stamp)
			say(frames.Port, string(stamp)) // counts as a frame of the generator, because it has a stamp
			say(frames.Port+1, "passes on")
			say(frames.Port, "is none") // no stamp
			b := make([]byte, 100)
			for i, want := range []string{"is none", "passes on"} {
				if n, err := ears[i].Read(b); err != nil || string(b[:n]) != want {
					t.Errorf("port %d got %q, %v, want %q", frames.Port+i, b[:n], err, want)
				}
			}
			if got := stats(t, r); got.Frames != 1 || got.Foreign < 2 || got.Tagged != 0 {
				t.Errorf("counts %+v", withoutZeros(got))
			}
			tagged := frame(100, frames.Stamp{})
			tagged = append(tagged[:12:12], append([]byte{0x81, 0, 0, 5}, tagged[12:]...)...)
			newSender(t, p.Client, "gwt0").send(tagged)
			labtest.Await(t, "a frame behind a VLAN tag", func() bool { return stats(t, r).Tagged == 1 })
		})
	}
}

// checkFirstInOrder requires that the receiver counts frames before another program at the interface drops them.
func checkFirstInOrder(t *testing.T, p labtest.Pair) {
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, shot), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drop.Close()
	var other hook.Attachment
	p.Server.Do(func() {
		var ifi *net.Interface
		if ifi, err = net.InterfaceByName("gwt1"); err == nil {
			other, err = hook.Attach(hook.Config{Interface: ifi.Index}, drop)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r := open(t, p.Server, Config{})
	newSender(t, p.Client, "gwt0").send(frame(60, frames.Stamp{SentNs: now()}))
	awaitFrames(t, r, 1)
}

// checkNothingLeft requires that the program leaves the interface when its process is killed, and on Close.
func checkNothingLeft(t *testing.T, p labtest.Pair) {
	programs := func() (n int) {
		t.Helper()
		var err error
		p.Server.Do(func() {
			var ifi *net.Interface
			var list *link.QueryResult
			if ifi, err = net.InterfaceByName("gwt1"); err != nil {
				return
			}
			if list, err = link.QueryPrograms(link.QueryOptions{Target: ifi.Index, Attach: ebpf.AttachTCXIngress}); err == nil {
				n = len(list.Programs)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), receiveOnEnv+"=gwt1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Server.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	if text, err := bufio.NewReader(out).ReadString('\n'); text != "<nil>\n" {
		t.Errorf("opening in another process: %s, %v", text, err)
	}
	if n := programs(); n != 1 {
		t.Errorf("%d programs while it receives", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // says that it was killed
	labtest.Await(t, "the program to go with its process", func() bool { return programs() == 0 })

	var r *Receiver
	p.Server.Do(func() { r, err = Open(Config{Interface: "gwt1", clsact: true}) })
	if err != nil {
		t.Fatal(err)
	}
	p.Server.Do(func() {
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := r.Stats(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("counts after Close: %v", err)
		}
		if left, err := exec.Command("tc", "qdisc", "show", "dev", "gwt1").Output(); err != nil ||
			strings.Contains(string(left), "clsact") {
			t.Errorf("after Close there is %s, %v", left, err)
		}
	})
}

// badLinks requires that errors of Open name the interface and the reason, and that the counts of a removed interface
// can still be read, with an error.
func badLinks(t *testing.T, p labtest.Pair) {
	p.Server.Run(t, "ip tuntap add tun0 mode tun")
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{Interface: "none"}, "none"},
		{Config{Interface: "tun0"}, "Ethernet"},
		{Config{Interface: "gwt1", Streams: -1}, "streams"},
		{Config{Interface: "gwt1", Streams: 1 << 17}, "streams"},
		{Config{Interface: "gwt1", FramesPerStream: -1}, "frames"},
		{Config{Interface: "gwt1", Streams: 1000, FramesPerStream: 1 << 40}, "frames"},
	} {
		p.Server.Do(func() {
			if _, err := Open(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), tt.cfg.Interface) {
				t.Errorf("%+v: %v, want an error that names %s and %s", tt.cfg, err, tt.cfg.Interface, tt.want)
			}
		})
	}
	for _, clsact := range []bool{false, true} {
		name := fmt.Sprintf("gone%v", clsact)
		p.Server.Run(t, `ip link add "$name" type veth peer name far; ip link set far up; ip link set "$name" up
until ip link show far | grep -q "state UP"; do sleep 0.01; done`, "name="+name)
		r := open(t, p.Server, Config{Interface: name, clsact: clsact})
		newSender(t, p.Server, "far").send(frame(60, frames.Stamp{}))
		awaitFrames(t, r, 1)
		p.Server.Run(t, "ip link del "+name)
		got, err := r.Stats()
		if err == nil || !strings.Contains(err.Error(), name) || got.Frames != 1 {
			t.Errorf("on an interface that is gone: %d frames, %v", got.Frames, err)
		}
	}
}
