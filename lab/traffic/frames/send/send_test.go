package send_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// The tests of this file send frames from gwt0 (client) to gwt1 (server), read them there from a packet socket, and
// compare each with the plan. steady is a plan of frames at a constant gap; received is a frame as it arrived.

// engines are the two ways of sending: eBPF programs in the kernel (live), and a packet socket.
var engines = []send.Engine{send.EngineLive, send.EnginePacket}

// newPair returns a pair whose client end accepts live frames. veth allows these when aggregation (GRO) is switched on
// at the other end.
func newPair(t testing.TB) labtest.Pair {
	t.Helper()
	p := labtest.NewPair(t)
	p.Server.Run(t, "ethtool -K gwt1 gro off && ethtool -K gwt1 gro on")
	return p
}

// streams returns n streams from clients of their own to the server's discard port.
func streams(t testing.TB, p labtest.Pair, n int) []send.Stream {
	t.Helper()
	var to send.MAC
	p.Server.Do(func() {
		ifi, err := net.InterfaceByName("gwt1")
		if err != nil {
			t.Error(err)
			return
		}
		to = send.MAC(ifi.HardwareAddr)
	})
	return streamsTo(to, n)
}

// streamsTo returns n streams to a hardware address.
func streamsTo(to send.MAC, n int) []send.Stream {
	s := make([]send.Stream, n)
	for i := range s {
		s[i] = send.Stream{
			SrcMAC: send.MAC{2, 0, 0, 1, byte(i >> 8), byte(i)}, DstMAC: to,
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 77, byte(1 + i>>8), byte(i)}), uint16(4000+i)),
			Dst: netip.AddrPortFrom(labtest.ServerIP, frames.Port),
		}
	}
	return s
}

// start starts a sender in namespace s, on gwt0 unless cfg names another link.
func start(t testing.TB, s *netnstest.Space, cfg send.Config) (*send.Sender, error) {
	t.Helper()
	if cfg.Link == "" {
		cfg.Link = "gwt0"
	}
	if cfg.MaxFor == 0 {
		cfg.MaxFor = 30 * time.Second
	}
	var sender *send.Sender
	var err error
	s.Do(func() { sender, err = send.Start(context.Background(), cfg) })
	if err == nil {
		t.Cleanup(func() { _ = sender.Stop() })
	}
	return sender, err
}

// carryOut sends until the sender ends, and returns what was sent.
func carryOut(t testing.TB, s *netnstest.Space, cfg send.Config) send.Sent {
	t.Helper()
	sender, err := start(t, s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Wait(); err != nil {
		t.Fatal(err)
	}
	return sender.Stats()
}

// listen opens a packet socket at the server's end that keeps all frames of an EtherType, or of all (ETH_P_ALL).
func listen(t testing.TB, s *netnstest.Space, etherType int) (fd int) {
	t.Helper()
	var err error
	s.Do(func() {
		inNetworkOrder := etherType>>8 | etherType&0xff<<8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, inNetworkOrder); err != nil {
			return
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// read reads n frames of the sender from the packet socket or TAP device fd.
func read(t testing.TB, fd, n int) (all []received) {
	t.Helper()
	b := make([]byte, 1<<14)
	labtest.Await(t, fmt.Sprintf("%d frames", n), func() bool {
		for len(all) < n {
			got, err := unix.Read(fd, b)
			if err != nil {
				return false
			}
			if r, ok := parse(t, b[:got]); ok {
				all = append(all, r)
			}
		}
		return true
	})
	return all
}

// TestFramesArriveAsPlanned compares each frame with the plan, the account with the stamps, and has the kernel's UDP
// check what it receives.
func TestFramesArriveAsPlanned(t *testing.T) {
	p := newPair(t)
	to := streams(t, p, 300)
	var socket net.PacketConn
	var err error
	p.Server.Do(func() { socket, err = net.ListenPacket("udp4", fmt.Sprintf("%s:%d", labtest.ServerIP, frames.Port)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() { // a datagram counts once it is read
		for b := make([]byte, 1<<11); ; {
			if _, _, err := socket.ReadFrom(b); err != nil {
				return
			}
		}
	}()
	const n = 3000
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			fd := listen(t, p.Server, unix.ETH_P_IP)
			before := labtest.Counters(t, p.Server)
			plan := &steady{frames: n, gapNs: 20_000, sizes: []int{60, 61, 590, 1514, 1513, 62, 128}, streams: 300}
			sent := carryOut(t, p.Client, send.Config{Streams: to, Plan: plan, Engine: e})
			if sent.Engine != e || sent.Intended != n || sent.Offered != n {
				t.Errorf("engine %s (%s), intended %d, offered %d; want %s and %d frames", sent.Engine, sent.Reason, sent.Intended,
					sent.Offered, e, n)
			}
			all := read(t, fd, n)
			compare(t, plan, to, all)
			checkAccount(t, plan, sent, all)
			labtest.Await(t, "the kernel's UDP", func() bool {
				now := labtest.Counters(t, p.Server)
				if bad := now["Udp:InCsumErrors"] - before["Udp:InCsumErrors"]; bad != 0 {
					t.Fatalf("%d checksums are wrong", bad)
				}
				return now["Udp:InDatagrams"]+now["Udp:RcvbufErrors"]-before["Udp:InDatagrams"]-before["Udp:RcvbufErrors"] == n
			})
		})
	}
}

// compare checks the frames' order, sizes, numbers and addresses.
func compare(t *testing.T, plan *steady, to []send.Stream, all []received) {
	t.Helper()
	for i, r := range all {
		f := plan.frameAt(i)
		want := received{
			Stamp: frames.Stamp{Stream: f.Stream, Number: uint64(i / plan.streams), SentNs: r.SentNs},
			bytes: int(f.Bytes), src: to[f.Stream].Src, dst: to[f.Stream].Dst, srcMAC: to[f.Stream].SrcMAC,
		}
		if r != want {
			t.Fatalf("frame %d is %+v, want %+v", i, r, want)
		}
	}
}

// checkAccount checks that lateness, sizes and streams in the account are those of the frames that arrived.
func checkAccount(t *testing.T, plan *steady, sent send.Sent, all []received) {
	t.Helper()
	sizes, byStream, bytes := map[int]int64{}, make([]int64, len(sent.ByStream)), int64(0)
	began := all[0].SentNs // by the stamps: the latest frame left Late.Max after it was due
	for i, r := range all {
		sizes[r.bytes]++
		byStream[r.Stream]++
		bytes += int64(r.bytes)
		began = max(began, r.SentNs-plan.frameAt(i).Due)
	}
	began -= int64(sent.Late.Max)
	var late int64
	for i, r := range all {
		after := r.SentNs - began - plan.frameAt(i).Due
		if after < 0 {
			t.Fatalf("frame %d left %d ns before it was due", i, -after)
		}
		late += after
	}
	if late != int64(sent.Late.Sum) || sent.Late.Frames != sent.Offered {
		t.Errorf("by the stamps %d frames were late by %d ns in all; the account says %d and %d", len(all), late,
			sent.Late.Frames, sent.Late.Sum)
	}
	for _, s := range sent.BySize {
		if sizes[s.Bytes] != s.Frames {
			t.Errorf("%d frames of %d bytes arrived; the account says %d", sizes[s.Bytes], s.Bytes, s.Frames)
		}
	}
	if len(sent.BySize) != len(sizes) || bytes != sent.OfferedBytes {
		t.Errorf("%d sizes and %d bytes arrived; the account says %d and %d", len(sizes), bytes, len(sent.BySize),
			sent.OfferedBytes)
	}
	for i := range byStream {
		if byStream[i] != sent.ByStream[i] {
			t.Fatalf("stream %d: %d frames arrived; the account says %d", i, byStream[i], sent.ByStream[i])
		}
	}
}

// TestLinkWithoutXDP: a veth whose other end has no polling takes frames from a packet socket only, and jumbo frames
// are too long for the live engine.
func TestLinkWithoutXDP(t *testing.T) {
	p := newPair(t)
	p.Client.Run(t, "ip link set gwt0 mtu 9000")
	p.Server.Run(t, "ip link set gwt1 mtu 9000 && ethtool -K gwt1 gro off")
	to := streams(t, p, 2)
	for _, sizes := range [][]int{{60, 1514}, {60, 9014, 3073}} {
		fd := listen(t, p.Server, unix.ETH_P_IP)
		plan := &steady{frames: 200, gapNs: 1000, sizes: sizes, streams: 2}
		sent := carryOut(t, p.Client, send.Config{Streams: to, Plan: plan})
		if sent.Engine != send.EnginePacket || sent.Reason == "" || sent.Offered != 200 {
			t.Errorf("sizes %v: engine %s, reason %q, offered %d", sizes, sent.Engine, sent.Reason, sent.Offered)
		}
		all := read(t, fd, 200)
		compare(t, plan, to, all)
		checkAccount(t, plan, sent, all)
	}
	if _, err := start(t, p.Client, send.Config{Streams: to, Plan: &steady{sizes: []int{3073}, streams: 1},
		Engine: send.EngineLive}); err == nil {
		t.Error("the live engine accepts frames that are too long for it")
	}
}
