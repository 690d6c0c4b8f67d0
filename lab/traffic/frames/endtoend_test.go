package frames_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/receive"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// The tests of this file send frames from a generator through a router to a sink, each in its network namespace.
// Package send sends them, package receive counts them at the sink.

// path is a generator, a router that forwards, and a sink. Links are gwt0 (generator) to gwt1 (router), and out0
// (router) to in0 (sink).
type path struct {
	generator, router, sink *netnstest.Space
	routerMAC               send.MAC
}

var sinkIP = netip.MustParseAddr("10.78.0.2")

// newPath sets up the namespaces, links and addresses. Neighbours are known, so that no ARP crosses the links.
func newPath(t *testing.T) *path {
	t.Helper()
	pair := labtest.NewPair(t)
	p := &path{pair.Client, pair.Server, netnstest.NewSpace(t), send.MAC{}}
	p.router.Run(t, `sysctl -qw net.ipv6.conf.default.disable_ipv6=1 # whose own packets a short queue drops, too
ip link add out0 type veth peer name in0 netns "$sink"; ip addr add 10.78.0.1/24 dev out0
ethtool -K out0 tso off tx-udp-segmentation off; ip link set out0 up; sysctl -qw net.ipv4.ip_forward=1
ethtool -K gwt1 gro off; ethtool -K gwt1 gro on`, fmt.Sprintf("sink=%d", p.sink.TID())) // a change switches on what live frames need
	p.sink.Run(t, "ip addr add 10.78.0.2/24 dev in0; ethtool -K in0 gro on; ip link set in0 up address 02:00:00:00:00:99")
	p.router.Run(t, `ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:99 dev out0 nud permanent
until ip link show out0 | grep -q "state UP"; do sleep 0.01; done`)
	p.router.Do(func() {
		ifi, err := net.InterfaceByName("gwt1")
		if err != nil {
			t.Error(err)
			return
		}
		p.routerMAC = send.MAC(ifi.HardwareAddr)
	})
	return p
}

// streams returns n streams from the generator to the sink, with addresses of their own.
func (p *path) streams(n int) []send.Stream {
	list := make([]send.Stream, n)
	for i := range list {
		list[i] = send.Stream{
			SrcMAC: send.MAC{2, 0, 0, 0, 1, byte(i)}, DstMAC: p.routerMAC,
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 77, 1, byte(i)}), uint16(4000+i)),
			Dst: netip.AddrPortFrom(sinkIP, frames.Port),
		}
	}
	return list
}

// dropped counts the packets that links and queues of router and sink have dropped. It leaves out the link from the
// generator: its ends also count frames that it refused and the generator sent again.
func (p *path) dropped(t *testing.T) (n uint64) {
	t.Helper()
	for _, s := range []*netnstest.Space{p.router, p.sink} {
		var err error
		s.Do(func() {
			var links []netlink.Link
			var queues []netlink.Qdisc
			var e error
			links, err = netlink.LinkList()
			for _, l := range links {
				if l.Attrs().Name == "gwt1" {
					continue
				}
				if queues, e = netlink.QdiscList(l); e != nil {
					err = errors.Join(err, e)
				}
				n += l.Attrs().Statistics.RxDropped + l.Attrs().Statistics.TxDropped
				for _, q := range queues {
					if st := q.Attrs().Statistics; st != nil && st.Queue != nil {
						n += uint64(st.Queue.Drops)
					}
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestFramesFromEndToEnd: each frame that the sender's link took has arrived or is in a counter of drops.
func TestFramesFromEndToEnd(t *testing.T) {
	const streams, count = 5, 5000
	p := newPath(t)
	var r *receive.Receiver
	var err error
	p.sink.Do(func() {
		r, err = receive.Open(receive.Config{Interface: "in0", Streams: streams, FramesPerStream: count})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, slow := range []bool{false, true} {
		if slow { // a queue that is too short and too slow for the frames, which all leave at once
			p.router.Run(t, "tc qdisc replace dev out0 root tbf rate 2mbit burst 3000 limit 20000")
		}
		for _, name := range []string{"60", "imix", "1514"} {
			t.Run(fmt.Sprintf("%s, slow %v", name, slow), func(t *testing.T) { p.trial(t, r, name, streams, count, slow) })
		}
	}
}

// trial sends count frames of a mix (name) through the path and compares all counts. With slow, frames all leave at
// once and the router drops some of them.
func (p *path) trial(t *testing.T, r *receive.Receiver, name string, streams, count int, slow bool) {
	sizes, err := frames.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := frames.Config{
		Sizes: sizes, Schedule: frames.Schedule{AtOnce: true}, Streams: streams, Count: int64(count), Seed: 1}
	if !slow {
		cfg.Schedule = frames.Schedule{PacketsPerSecond: 50_000}
	}
	plan, err := frames.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Reset(); err != nil {
		t.Fatal(err)
	}
	before := p.dropped(t)
	sent := p.send(t, plan)
	var got receive.Received
	var lost uint64
	labtest.Await(t, "an account of all frames", func() bool {
		if got, err = r.Stats(); err != nil {
			t.Fatal(err)
		}
		lost = p.dropped(t) - before
		return got.Distinct()+lost >= uint64(sent.Offered)
	})
	if sent.Intended != int64(count) || sent.Offered != int64(count) || got.Lost(uint64(sent.Offered)) != int64(lost) {
		t.Errorf("of %d frames the link took %d, %d came, %d were dropped", sent.Intended, sent.Offered, got.Distinct(), lost)
	}
	if got.Duplicates+got.Stray+got.Merged+got.Early+got.Tagged != 0 {
		t.Errorf("counts %+v", got)
	}
	if slow && lost == 0 {
		t.Error("a queue that is too short dropped nothing")
	}
	for _, s := range sent.BySize {
		if n := int64(got.Sizes[s.Bytes]); n > s.Frames || lost == 0 && n != s.Frames {
			t.Errorf("of %d frames of %d bytes came %d, %d were dropped", s.Frames, s.Bytes, n, lost)
		}
	}
	for i, s := range got.Streams {
		if s.Distinct() > uint64(sent.ByStream[i]) || lost == 0 && s.Distinct() != uint64(sent.ByStream[i]) {
			t.Errorf("of %d frames of stream %d came %d", sent.ByStream[i], i, s.Distinct())
		}
	}
	t.Logf("%s engine: %d of %d came, delay %.0f ns in the median, %.0f in the 99th percentile", sent.Engine,
		got.Distinct(), count, got.Delay.QuantileNs(0.5), got.Delay.QuantileNs(0.99))
}

// send sends a plan from the generator and returns what was sent.
func (p *path) send(t *testing.T, plan *frames.Plan) send.Sent {
	t.Helper()
	var s *send.Sender
	var err error
	p.generator.Do(func() {
		s, err = send.Start(
			context.Background(), send.Config{Link: "gwt0", Streams: p.streams(plan.Streams()), Plan: plan, MaxFor: time.Minute})
	})
	if err == nil {
		err = s.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Stats()
}
