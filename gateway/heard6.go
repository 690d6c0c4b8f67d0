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
)

// heard6 reads what the data path heard of clients' IPv6 addresses, and hands each frame to the parts that it concerns.
type heard6 struct {
	source              io.ReadCloser
	neighbours, routers frames
	servers             frames // DHCPv6
}

// Places in an Ethernet frame with an IPv6 packet, and values there.
const (
	senderAt     = 6  // MAC address
	ethernetLen  = 14 // bytes
	nextHeaderAt = ethernetLen + 6
	sourceAt     = ethernetLen + 8
	icmp6At      = ethernetLen + 40
	icmp6        = 58 // next header
	udp          = 17
	dhcp6Client  = 546 // port
	dhcp6Server  = 547
)

// framesWaiting bounds the frames that wait for a part. A client whose frame is dropped sends it again.
const framesWaiting = 1024

func listen6(path datapath.IPv6) (*heard6, error) {
	source, err := path.Heard6()
	if err != nil {
		return nil, err
	}
	return &heard6{source: source, neighbours: newFrames(), routers: newFrames(), servers: newFrames()}, nil
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
	if len(frame) < icmp6At {
		return
	}
	next := frame[nextHeaderAt]
	sender, source := bindings.Anchor{MAC: [6]byte(frame[senderAt:])}, netip.AddrFrom16([16]byte(frame[sourceAt:icmp6At]))
	switch {
	case next == icmp6 && len(frame) > icmp6At && frame[icmp6At] >= bindings.RouterSolicitation &&
		frame[icmp6At] <= bindings.Redirect:
		if frame[icmp6At] != bindings.RouterAdvertisement {
			h.neighbours.put(frame)
		}
		if frame[icmp6At] <= bindings.RouterAdvertisement {
			h.routers.put(frame)
		}
		if frame[icmp6At] == bindings.NeighborSolicitation && !source.IsUnspecified() {
			sent(sender, source)
		}
	case next == udp && len(frame) >= icmp6At+4:
		port := binary.BigEndian.Uint16(frame[icmp6At+2:])
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
	waiting chan []byte
	ended   chan struct{}
	end     func()
}

func newFrames() frames {
	ended := make(chan struct{})
	return frames{make(chan []byte, framesWaiting), ended, sync.OnceFunc(func() { close(ended) })}
}

// put adds a copy of a frame, unless too many wait.
func (f frames) put(frame []byte) {
	select {
	case f.waiting <- append([]byte(nil), frame...):
	default:
	}
}

// open returns the frames as a reader, one each Read.
func (f frames) open() (io.ReadCloser, error) { return f, nil }

func (f frames) Read(b []byte) (int, error) {
	select {
	case frame := <-f.waiting:
		return copy(b, frame), nil
	case <-f.ended:
		return 0, os.ErrClosed
	}
}

// Close ends Read. It may be called more than once.
func (f frames) Close() error { f.end(); return nil }
