package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// loopTime is the length of tryMachine's first loop: most machines complete a piece of it in this time.
const loopTime = 20 * time.Millisecond

// plansWithHashes are plans of frames, each with the FNV-1a hash of its first frames. Every architecture must compute
// the same hashes.
var plansWithHashes = []struct {
	name string
	size string
	cfg  frames.Config
	want uint64
}{
	{"constant", "60", frames.Config{Schedule: frames.Schedule{PacketsPerSecond: 148809.5238}, Streams: 7},
		0xf5d4cc92e57451a3},
	{"IMIX at a bit rate", "imix", frames.Config{Schedule: frames.Schedule{Mbps: 123.4567}, Seed: 1}, 0xd3357cc8360767f4},
	{"study 5, Poisson", "study5", frames.Config{Schedule: frames.Schedule{Mbps: 920, Poisson: true}, Seed: 2, GapSeed: 3,
		Streams: 65536}, 0xbcb20e80c24f5bbd},
	{"CAIDA, bursts scattered", "caida", frames.Config{Schedule: frames.Schedule{PacketsPerSecond: 1e6}, Burst: 44,
		Scatter: true, Seed: 4, GapSeed: 5}, 0x1755f63a3dd91fb9},
	{"bursts an hour apart, scattered", "1514", frames.Config{Schedule: frames.Schedule{PacketsPerSecond: 0.001}, Burst: 4,
		Scatter: true, GapSeed: 6}, 0xefb3bad9ea7aaccd},
}

// plannedFrames is the number of frames of each plan that are hashed.
const plannedFrames = 10_000

// tryPlans computes the plans and compares their hashes.
func tryPlans(context.Context, *selfTest) (string, error) {
	var errs []error
	for _, p := range plansWithHashes {
		sizes, err := frames.Named(p.size)
		if err != nil {
			return "", err
		}
		p.cfg.Sizes, p.cfg.Count = sizes, plannedFrames
		plan, err := frames.NewPlan(p.cfg)
		if err != nil {
			return "", err
		}
		batch := make([]frames.Frame, plannedFrames)
		if n := plan.Fill(batch); n != plannedFrames {
			return "", fmt.Errorf("%s: %d of %d frames", p.name, n, plannedFrames)
		}
		h := fnv.New64a()
		for _, f := range batch {
			var b [12]byte
			binary.BigEndian.PutUint16(b[0:], f.Bytes)
			binary.BigEndian.PutUint16(b[2:], f.Stream)
			binary.BigEndian.PutUint64(b[4:], uint64(f.Due))
			h.Write(b[:])
		}
		if got := h.Sum64(); got != p.want {
			errs = append(errs, fmt.Errorf("%s: the plan's hash is %#x, want %#x", p.name, got, p.want))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d plans of %d frames have the hashes of every architecture", len(plansWithHashes), plannedFrames),
		nil
}

// firstFramesHash is the FNV-1a hash of the frames that tryFrames makes.
const firstFramesHash uint64 = 0x8cf85d74f75d4d23

// tryFrames makes frames, and tests their checksums with code of its own, their time stamps, and their hash.
func tryFrames(context.Context, *selfTest) (string, error) {
	st := send.Stream{
		SrcMAC: send.MAC{2, 0, 0, 0, 0, 1}, DstMAC: send.MAC{2, 0, 0, 0, 0, 2},
		Src: netip.MustParseAddrPort("10.77.1.1:9"), Dst: netip.MustParseAddrPort("192.0.2.1:50000"),
	}
	const number, sent = 1<<47 + 12345, math.MaxInt64 - 99
	h := fnv.New64a()
	sizes := []int{60, 61, 590, 1514, 9014}
	for _, size := range sizes {
		b, err := send.Frame(st, size, number, sent)
		if err != nil {
			return "", err
		}
		h.Write(b)
		ip, udp := b[frames.EthernetBytes:], b[frames.EthernetBytes+frames.IPv4Bytes:]
		pseudo := binary.BigEndian.AppendUint32(append([]byte(nil), ip[12:20]...), 17<<16|uint32(len(udp)))
		stamp, stamped := frames.ReadStamp(b[frames.PayloadAt:])
		if internetSum(ip[:frames.IPv4Bytes]) != 0xffff || internetSum(append(pseudo, udp...)) != 0xffff || !stamped ||
			stamp.Number != number || stamp.SentNs != sent {
			return "", fmt.Errorf(
				"a frame of %d bytes has wrong checksums or a wrong stamp (%+v): %x", size, stamp, b[:frames.MinBytes])
		}
	}
	if got := h.Sum64(); got != firstFramesHash {
		return "", fmt.Errorf("the frames' hash is %#x, want %#x", got, firstFramesHash)
	}
	return fmt.Sprintf("%d frames of %d to %d bytes: checksums, stamps and the hash of every architecture", len(sizes),
		sizes[0], sizes[len(sizes)-1]), nil
}

// internetSum adds up 16-bit words as RFC 1071 does. Over bytes that include their right checksum, it is 0xffff.
func internetSum(b []byte) uint16 {
	var sum uint64
	for i, v := range b {
		sum += uint64(v) << (8 * (1 - i%2))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

func tryTCP(ctx context.Context, _ *selfTest) (string, error) { return tryStreams(ctx, false) }
func tryUDP(ctx context.Context, _ *selfTest) (string, error) { return tryStreams(ctx, true) }

// tryStreams starts a worker, the process in which agents run streams, and has it send streams to itself over the
// loopback interface.
func tryStreams(ctx context.Context, udp bool) (string, error) {
	list, err := addWorkers("self-test", nil, 1)
	if err != nil {
		return "", err
	}
	w := list[0]
	defer w.close()
	addr, err := freePort(udp)
	if err != nil {
		return "", fmt.Errorf("%w: a port of the loopback interface: %w", errNotHere, err)
	}
	if err := w.do(ctx, "Serve", Listener{Addr: addr, Generators: 1, UDP: udp}); err != nil {
		return "", err
	}
	const streams = 4
	load := bundle{Config: traffic.Config{
		Streams: streams, UDP: udp, RateBps: 4e6, Direction: result.Up, BurstSegments: 4, MaxSeconds: 60},
		Server: Server{Addr4: addr.Addr()}, Port: addr.Port()}
	for range streams {
		load.Local = append(load.Local, addr.Addr())
	}
	if err := w.do(ctx, "Start", load); err != nil {
		return "", err
	}
	got, err := awaitBytes(ctx, w.Conn)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bytes over the loopback interface", got), w.do(ctx, "Stop")
}

// awaitBytes waits until a worker's streams have received some bytes, and returns their number.
func awaitBytes(ctx context.Context, conn *Conn) (int64, error) {
	const enough = 50_000
	for {
		stats, err := ask[TrafficStats](ctx, conn, "Stats")
		switch {
		case err != nil:
			return 0, err
		case stats.Broken > 0:
			return 0, fmt.Errorf("%d streams ended: %s", stats.Broken, stats.FirstError)
		case stats.ReceivedBytes >= enough:
			return stats.ReceivedBytes, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d bytes came: %w", stats.ReceivedBytes, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freePort returns an address of the loopback interface at which no program listens.
func freePort(udp bool) (netip.AddrPort, error) {
	if udp {
		c, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return netip.AddrPort{}, err
		}
		defer c.Close()
		return netip.ParseAddrPort(c.LocalAddr().String())
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	return netip.ParseAddrPort(l.Addr().String())
}
