package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// addressFrames gives each end of a load its streams of frames, one a client, between the same two
// ports either way: a gateway that tracks connections takes both ways for one.
func (s *Bench) addressFrames(ctx context.Context) error {
	lan, wan, err := s.routerAddrs(ctx)
	if err != nil {
		return err
	}
	server, err := HardwareAddr(ctx, s.Server, s.Server.Ifs[0])
	if err != nil {
		return err
	}
	s.toServer, s.toClients = nil, nil
	for _, c := range s.Clients {
		mac, err := parseMAC(c.MAC)
		if err != nil {
			return fmt.Errorf("client %d: %w", c.N, err)
		}
		from, to := c.IP, s.Env.ServerIP
		if s.Side.Family.Sends6(c.N) {
			from, to = c.IP6, s.Env.ServerIP6
		}
		clientAddr, serverAddr := netip.AddrPortFrom(from, frames.Port), netip.AddrPortFrom(to, frames.Port)
		s.toServer = append(s.toServer, send.Stream{Src: clientAddr, Dst: serverAddr, SrcMAC: mac, DstMAC: lan})
		s.toClients = append(s.toClients, send.Stream{Src: serverAddr, Dst: clientAddr, SrcMAC: server, DstMAC: wan})
	}
	return nil
}

// routerAddrs returns the hardware addresses of the router's ports. If the router has no agent, the hosts at both ends
// resolve them by ARP.
func (s *Bench) routerAddrs(ctx context.Context) (lan, wan send.MAC, err error) {
	if s.Router == nil {
		if lan, err = neighbourAddr(ctx, s.Hosts[0].Host, s.Lab.Gateway); err == nil {
			wan, err = neighbourAddr(ctx, s.Server, s.Lab.RouterWAN)
		}
		return lan, wan, err
	}
	if lan, err = HardwareAddr(ctx, s.Router, s.Lab.Port(topology.PortLAN)); err == nil {
		last := s.Routers[len(s.Routers)-1] // of a tunnel the other gateway
		wan, err = HardwareAddr(ctx, last, s.Lab.Port(topology.PortWAN))
	}
	return lan, wan, err
}

// neighbourAddr has a host ask for the hardware address of a neighbour.
func neighbourAddr(ctx context.Context, h *backend.Host, ip netip.Addr) (mac send.MAC, err error) {
	const ask = `ping -n -c 1 -W 5 "$0" >/dev/null; ip -4 neigh show to "$0"`
	out, err := h.Run(ctx, agent.Command{Argv: []string{"sh", "-c", ask, ip.String()}, Support: true})
	if err != nil {
		return mac, fmt.Errorf("asking for the hardware address of the router's %s on %s: %w", ip, h.Name, err)
	}
	_, after, found := strings.Cut(out.Stdout, " lladdr ")
	words := strings.Fields(after)
	if !found || len(words) == 0 {
		return mac, fmt.Errorf("nobody has the router's address %s at the port of %s: see lan_address and wan_address, and "+
			"the cables", ip, h.Name)
	}
	return parseMAC(words[0])
}

// readClocks reads the difference between the clocks of server and clients, if these have several clocks.
func (s *Bench) readClocks(ctx context.Context) error {
	if !s.Clock.Kept {
		return nil
	}
	server, err := s.Server.Clock(ctx)
	if err != nil {
		return err
	}
	clients, err := s.Hosts[0].Clock(ctx)
	s.shift, s.Clock.Bound = server.OffsetNs-clients.OffsetNs, server.Bound+clients.Bound
	return err
}

// HardwareAddr is the address of a host's link.
func HardwareAddr(ctx context.Context, h *backend.Host, link string) (mac send.MAC, err error) {
	all, err := h.LinkAddresses(ctx)
	if err != nil {
		return mac, err
	}
	if mac, err = parseMAC(all[link]); err != nil {
		return mac, fmt.Errorf("the address of %s on %s: %w", link, h.Name, err)
	}
	return mac, nil
}

func parseMAC(text string) (mac send.MAC, err error) {
	addr, err := net.ParseMAC(text)
	copy(mac[:], addr)
	return mac, err
}

// FramesFrom describes a load of frames on a host's link, by the experiment's traffic. Random gaps differ between labs.
func FramesFrom(lab *topology.Lab, link string, t experiment.Traffic, length time.Duration) *agent.Frames {
	return &agent.Frames{
		Link: link, Length: length, Sizes: *t.Frames, Gaps: t.Gaps, Burst: t.BurstSegments, Seed: uint64(t.Seed),
		GapSeed: uint64(t.Seed)<<8 | uint64(lab.Name[0]),
	}
}

// framesOf is a host's part of the lab's load.
func (s *Bench) framesOf(link string, streams []send.Stream, length time.Duration) *agent.Frames {
	f := FramesFrom(s.Lab, link, s.Side.Traffic, length)
	f.Streams, f.BusyWait = streams, s.busyWait
	return f
}

// farFrames is the server's part of the load.
func (s *Bench) farFrames(length time.Duration) *agent.Frames {
	f := s.framesOf(s.Server.Ifs[0], s.toClients, length)
	if s.Load.Direction == result.Up {
		f.Streams = nil
	}
	f.Expected, f.ShiftNs = len(s.toServer), s.shift
	return f
}

// nearFrames is client host i's part of the load.
func (s *Bench) nearFrames(i int, length time.Duration) *agent.Frames {
	h := s.Hosts[i]
	f := s.framesOf(h.Ifs[0], nil, length)
	for index, c := range s.Clients {
		if c.N >= h.first && c.N < h.first+h.count {
			f.Streams = append(f.Streams, s.toServer[index])
		}
	}
	f.Expected, f.Opening = len(s.toClients), s.Load.Direction == result.Down
	f.ShiftNs = -s.shift
	return f
}
