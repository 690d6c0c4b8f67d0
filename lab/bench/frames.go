package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// addressFrames gives each end of a load its streams of frames, one a client, between the same two
// ports either way: a gateway that tracks connections takes both ways for one.
func (s *Bench) addressFrames(ctx context.Context) error {
	near, err := s.Router.LinkAddresses(ctx)
	if err != nil {
		return err
	}
	far, err := s.Routers[len(s.Routers)-1].LinkAddresses(ctx) // of a tunnel the other gateway
	if err != nil {
		return err
	}
	server, err := s.Server.LinkAddresses(ctx)
	if err != nil {
		return err
	}
	own, lan, wan := server[s.Server.Ifs[0]], near[s.Lab.Port(topology.PortLAN)], far[s.Lab.Port(topology.PortWAN)]
	s.toServer, s.toClients = nil, nil
	for _, c := range s.Clients {
		up, err := streamOf(c, lan, s.Env.ServerIP)
		if err != nil {
			return fmt.Errorf("client %d: %w", c.N, err)
		}
		down := send.Stream{Src: up.Dst, Dst: up.Src}
		if down.SrcMAC, err = hardware(own); err == nil {
			down.DstMAC, err = hardware(wan)
		}
		if err != nil {
			return err
		}
		s.toServer, s.toClients = append(s.toServer, up), append(s.toClients, down)
	}
	return nil
}

// streamOf is a client's stream to the server, by way of the router's LAN interface.
func streamOf(c dut.ClientAddr, router string, server netip.Addr) (up send.Stream, err error) {
	up.Src, up.Dst = netip.AddrPortFrom(c.IP, frames.Port), netip.AddrPortFrom(server, frames.Port)
	if up.SrcMAC, err = hardware(c.MAC); err == nil {
		up.DstMAC, err = hardware(router)
	}
	return up, err
}

func hardware(text string) (mac send.MAC, err error) {
	addr, err := net.ParseMAC(text)
	copy(mac[:], addr)
	return mac, err
}

// framesOf is the part of a host with that link.
func (s *Bench) framesOf(link string, streams []send.Stream, length time.Duration) *agent.Frames {
	t := s.Has.Traffic
	return &agent.Frames{
		Link: link, Streams: streams, For: length, Sizes: *t.Frames, Gaps: t.Gaps, Seed: uint64(t.Seed),
		GapSeed: uint64(t.Seed)<<8 | uint64(s.Lab.Name[0]), Burst: t.BurstSegments, Spins: s.spins,
	}
}

// farFrames is the server's part of the load.
func (s *Bench) farFrames(length time.Duration) *agent.Frames {
	f := s.framesOf(s.Server.Ifs[0], s.toClients, length)
	if s.Load.Direction == result.Up {
		f.Streams = nil
	}
	f.Expected = len(s.toServer)
	return f
}

// nearFrames is client host i's part of the load.
func (s *Bench) nearFrames(i int, length time.Duration) *agent.Frames {
	h := s.Hosts[i]
	f := s.framesOf(h.Ifs[0], nil, length)
	for at, c := range s.Clients {
		if c.N >= h.first && c.N < h.first+h.count {
			f.Streams = append(f.Streams, s.toServer[at])
		}
	}
	f.Expected, f.Opens = len(s.toClients), s.Load.Direction == result.Down
	return f
}
