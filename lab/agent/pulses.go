package agent

import (
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
)

// pulses is a host's part in measuring outages: see package pulse.
type pulses struct {
	mu     sync.Mutex    // guards what follows
	server *pulse.Server // nil before ServePulses
	sender *pulse.Sender // nil while no clients send
	last   pulse.Result  // of the sender that has ended
}

// Pulses is what a host has received: as the server, from its clients, or as the clients' host.
type Pulses struct {
	Server  pulse.Arrived `json:"server,omitzero"`
	Clients pulse.Result  `json:"clients,omitzero"`
}

func (p *pulses) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Close()
	}
	p.end()
}

// end ends the sender, and keeps what it has. The caller holds the lock.
func (p *pulses) end() {
	if p.sender != nil {
		p.last = p.sender.Read()
		p.sender.Close()
		p.sender = nil
	}
}

// ServePulses answers pulses of clients, until the agent ends.
func (a *Agent) ServePulses(_ context.Context, server Server) (err error) {
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	if a.pulses.server != nil {
		return errors.New("this host answers pulses already")
	}
	a.pulses.server, err = pulse.Serve(server.listen(pulsePort))
	return err
}

// SendPulses has all clients that have an address send pulses and open a connection, until EndPulses.
func (a *Agent) SendPulses(ctx context.Context, server Server) error {
	pool, err := a.clients()
	if err != nil {
		return err
	}
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	a.pulses.end()
	var peers []pulse.Peer
	for _, c := range pool.Clients {
		if !c.LocalIP().IsValid() {
			continue
		}
		peer, err := pulsePeer(ctx, c, server)
		if err != nil {
			for _, p := range peers {
				unix.Close(p.FD)
				p.TCP.Close()
			}
			return err
		}
		peers = append(peers, peer)
	}
	a.pulses.sender, err = pulse.Send(context.WithoutCancel(ctx), peers)
	return err
}

// Appear has all clients lease an address, at a pace, and each sends pulses as soon as it has one, without a
// connection. In the pulses it has its number plus add.
func (a *Agent) Appear(ctx context.Context, server Server, pace client.Pace, add int) ([]client.Outcome, error) {
	pool, err := a.clients()
	if err != nil {
		return nil, err
	}
	sender, err := pulse.Send(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	a.pulses.mu.Lock()
	a.pulses.end()
	a.pulses.sender = sender
	a.pulses.mu.Unlock()
	return pool.Appear(ctx, pace, func(ctx context.Context, c *client.Client) error {
		fd, err := pulseSocket(ctx, c, server)
		if err != nil {
			return err
		}
		if err = sender.Join(pulse.Peer{Num: c.Num + add, FD: fd}); err != nil {
			unix.Close(fd)
		}
		return err
	}), nil
}

// SilencePulses ends the clients' pulses. They receive on, until EndPulses.
func (a *Agent) SilencePulses(context.Context) {
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	if a.pulses.sender != nil {
		a.pulses.sender.Silence()
	}
}

// pulseSocket opens a client's socket for pulses.
func pulseSocket(ctx context.Context, c *client.Client, server Server) (fd int, err error) {
	flow := bundle{Config: traffic.Config{UDP: true}, Server: server, Port: pulsePort, clients: []*client.Client{c}}
	flow.Local = append(flow.Local, c.LocalIP())
	return flow.dial(ctx, 0)
}

// pulsePeer opens the sockets of a client.
func pulsePeer(ctx context.Context, c *client.Client, server Server) (p pulse.Peer, err error) {
	fd, err := pulseSocket(ctx, c, server)
	if err != nil {
		return p, err
	}
	var conn net.Conn
	if conn, err = c.DialContext(ctx, "tcp", server.port(c.LocalIP(), pulsePort).String()); err != nil {
		unix.Close(fd)
		return p, err
	}
	return pulse.Peer{Num: c.Num, FD: fd, TCP: conn}, nil
}

// MarkPulses begins to count outages.
func (a *Agent) MarkPulses(context.Context) {
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	if a.pulses.server != nil {
		a.pulses.server.Mark()
	}
	if a.pulses.sender != nil {
		a.pulses.sender.Mark()
	}
}

// ReadPulses returns what has arrived. After EndPulses it returns what had arrived until then.
func (a *Agent) ReadPulses(context.Context) (p Pulses) {
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	if a.pulses.server != nil {
		p.Server = a.pulses.server.Read()
	}
	p.Clients = a.pulses.last
	if a.pulses.sender != nil {
		p.Clients = a.pulses.sender.Read()
	}
	return p
}

// EndPulses ends the clients' pulses and their connections.
func (a *Agent) EndPulses(context.Context) {
	a.pulses.mu.Lock()
	defer a.pulses.mu.Unlock()
	a.pulses.end()
}
