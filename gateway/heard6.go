package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// heard6 reads what the data path heard of clients' IPv6 addresses, and hands each frame to the parts that it concerns.
type heard6 struct {
	source              io.ReadCloser
	sessions            bool // frames of PPPoE sessions count
	neighbours, routers *frames
	servers             *frames // DHCPv6
}

// Places in an IPv6 packet, and values there.
const (
	nextHeaderAt = 6
	sourceAt     = 8
	icmp6At      = 40 // behind the destination
	echoRequest  = 128
	icmp6        = 58 // next header
	udp          = 17
	dhcp6Client  = 546 // port
	dhcp6Server  = 547
)

// bytesWaiting bounds the frames that wait for a part: solicitations of 20,000 clients that come at once. A client
// whose frame is dropped sends it again, seconds later.
const bytesWaiting = 2 << 20

// listen6 begins to hear what the data path hears, in PPPoE sessions too if clients have IPv6 there.
func listen6(path datapath.IPv6, sessions bool) (*heard6, error) {
	source, err := path.Heard6()
	if err != nil {
		return nil, err
	}
	return &heard6{source: source, sessions: sessions,
		neighbours: newFrames(), routers: newFrames(), servers: newFrames()}, nil
}

// run hands frames on until ctx ends. used is told of packets from addresses that no client has, sent of these and of
// solicitations by which a device looks for whom it is about to send to.
func (h *heard6) run(ctx context.Context, used, sent func(bindings.Anchor, netip.Addr)) error {
	defer context.AfterFunc(ctx, func() { h.source.Close() })()
	b := make([]byte, 2048)
	for {
		n, err := h.source.Read(b)
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		h.hand(b[:n], used, sent)
	}
}

// hand hands a frame to the parts that it concerns.
func (h *heard6) hand(frame []byte, used, sent func(bindings.Anchor, netip.Addr)) {
	sender, packet, is6 := framelink.Split(frame)
	if !is6 || len(packet) < icmp6At || sender.Session != 0 && !h.sessions {
		return
	}
	next, source := packet[nextHeaderAt], netip.AddrFrom16([16]byte(packet[sourceAt:]))
	switch {
	case next == icmp6 && len(packet) > icmp6At && packet[icmp6At] >= bindings.RouterSolicitation &&
		packet[icmp6At] <= bindings.Redirect:
		if packet[icmp6At] != bindings.RouterAdvertisement {
			h.neighbours.put(frame)
		}
		if packet[icmp6At] <= bindings.RouterAdvertisement {
			h.routers.put(frame)
		}
		if packet[icmp6At] == bindings.NeighborSolicitation && !source.IsUnspecified() {
			sent(sender, source)
		}
	case next == icmp6 && len(packet) > icmp6At && packet[icmp6At] == echoRequest && source.IsLinkLocalUnicast() &&
		sender.Session != 0:
		h.neighbours.put(frame)
	case next == udp && len(packet) >= icmp6At+4:
		port := binary.BigEndian.Uint16(packet[icmp6At+2:])
		if port == dhcp6Server || port == dhcp6Client {
			h.servers.put(frame)
		}
	default:
		used(sender, source)
		sent(sender, source)
	}
}

// Close ends run.
func (h *heard6) Close() error {
	h.neighbours.Close()
	h.routers.Close()
	h.servers.Close()
	return h.source.Close()
}

// frames are Ethernet frames that wait for a part of the gateway.
type frames struct {
	mu      sync.Mutex // guards what follows
	more    sync.Cond  // there is a frame, or the end
	waiting [][]byte
	bytes   int // of waiting
	ended   bool
}

func newFrames() *frames {
	f := &frames{}
	f.more.L = &f.mu
	return f
}

// put adds a copy of a frame, unless too much waits.
func (f *frames) put(frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+len(frame) > bytesWaiting {
		return
	}
	f.waiting = append(f.waiting, append([]byte(nil), frame...))
	f.bytes += len(frame)
	f.more.Signal()
}

// open returns the frames as a reader, one each Read.
func (f *frames) open() (io.ReadCloser, error) { return f, nil }

func (f *frames) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.waiting) == 0 && !f.ended {
		f.more.Wait()
	}
	if f.ended {
		return 0, os.ErrClosed
	}
	frame := f.waiting[0]
	f.waiting[0] = nil
	if f.waiting = f.waiting[1:]; len(f.waiting) == 0 {
		f.waiting = nil // so that what a storm took is given back
	}
	f.bytes -= len(frame)
	return copy(b, frame), nil
}

// Close ends Read. It may be called more than once.
func (f *frames) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.more.Broadcast()
	return nil
}
