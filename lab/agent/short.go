package agent

import (
	"context"
	"net"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// serveShort starts the server of short connections, once. The caller holds the
// traffic's lock.
func (t *trafficState) serveShort(ctx context.Context, load Traffic) (err error) {
	if load.ShortPerSecond > 0 && t.answers == nil {
		t.answers, err = short.Serve(ctx, netip.AddrPortFrom(load.Server, shortPort))
	}
	return err
}

// startShort begins to open short connections, from all clients in turn. The caller
// holds the traffic's lock.
func (t *trafficState) startShort(ctx context.Context, load Traffic, pool *client.Pool) (err error) {
	if load.ShortPerSecond == 0 {
		return nil
	}
	if t.short != nil {
		return errTraffic
	}
	to := netip.AddrPortFrom(load.Server, shortPort).String()
	cfg := short.Config{PerSecond: load.ShortPerSecond, After: load.ShortAfter, Bytes: load.ShortBytes}
	t.short, err = short.Start(context.WithoutCancel(ctx), cfg, func(ctx context.Context, n int) (net.Conn, error) {
		return pool.Clients[n%len(pool.Clients)].DialContext(ctx, "tcp", to)
	})
	return err
}

// stopShort opens no more. The caller holds the traffic's lock.
func (t *trafficState) stopShort() {
	if t.short != nil {
		t.short.Close()
		t.short = nil
	}
}

// trafficShort tells of the short connections since the load began.
func (a *Agent) trafficShort(context.Context, none) (short.Stats, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	if a.traffic.short == nil {
		return short.Stats{}, nil
	}
	return a.traffic.short.Stats(), nil
}
