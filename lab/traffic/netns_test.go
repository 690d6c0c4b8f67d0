package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// space is a network namespace that listens and dials.
type space struct{ *labtest.Space }

// pair is a client and a server namespace joined by a link.
type pair struct{ client, server *space }

func newPair(t testing.TB) pair {
	t.Helper()
	p := labtest.NewPair(t)
	return pair{&space{p.Client}, &space{p.Server}}
}

// listen opens the server's socket; the address is for dial.
func (s *space) listen(t testing.TB, ip netip.Addr) (fd int, addr netip.AddrPort) {
	t.Helper()
	var err error
	s.Do(func() { fd, err = Listen(netip.AddrPortFrom(ip, 0)) })
	if err != nil {
		t.Fatal(err)
	}
	return fd, netip.AddrPortFrom(ip, localPort(t, fd))
}

func localPort(t testing.TB, fd int) uint16 {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if sa, ok := sa.(*unix.SockaddrInet6); ok {
		return uint16(sa.Port)
	}
	return uint16(sa.(*unix.SockaddrInet4).Port)
}

// dial makes the socket in s and connects it from wherever it is called.
func (s *space) dial(addr netip.AddrPort) DialFunc {
	return func(ctx context.Context, _ int) (fd int, err error) {
		s.Do(func() { fd, err = NewSocket(addr.Addr(), "") })
		if err != nil {
			return -1, err
		}
		if err := Connect(ctx, fd, netip.Addr{}, addr); err != nil {
			unix.Close(fd)
			return -1, err
		}
		return fd, nil
	}
}

// serve starts a server in p's server namespace.
func (p pair) serve(t testing.TB) (*Server, netip.AddrPort) {
	t.Helper()
	fd, addr := p.server.listen(t, labtest.ServerIP)
	s, err := Serve(context.Background(), fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, addr
}

// start runs a generator in p's client namespace against addr.
func (p pair) start(t testing.TB, cfg Config, addr netip.AddrPort) *Generator {
	t.Helper()
	g, err := Start(context.Background(), cfg, p.client.dial(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// rate is payload bits per second between two readings.
func rate(a, b Stats) float64 {
	bytes := b.SentBytes - a.SentBytes + b.ReceivedBytes - a.ReceivedBytes
	return float64(bytes) * 8 / (float64(b.ElapsedNs-a.ElapsedNs) / 1e9)
}

func describe(s Stats) string {
	return fmt.Sprintf("streams %d sent %d received %d bursts %d shortfall %d late %d µs broken %d (%s) cpu %.1f %%",
		s.Streams, s.SentBytes, s.ReceivedBytes, s.Bursts, s.ShortfallBytes, s.MaxLatenessNs/1000,
		s.Broken, s.FirstError, 100*float64(s.CPUNs)/float64(max(1, s.ElapsedNs)))
}

// runs are a generator's run as the sender and the receiver have it.
func runs(g *Generator, a *arrivals) (sender, receiver *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	far := a.find(g.run.id).run
	if g.run.sends {
		return g.run, far
	}
	return far, g.run
}

// carried is the payload of those streams of a run that carried least and most.
func (r *run) carried() (least, most int64) {
	least = r.streams[0].bytes.Load()
	for i := range r.streams {
		n := r.streams[i].bytes.Load()
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// awaitPayload waits until each stream's has arrived.
func awaitPayload(t testing.TB, g *Generator, a *arrivals) {
	t.Helper()
	_, receiver := runs(g, a)
	labtest.Await(t, "every stream's payload", func() bool { least, _ := receiver.carried(); return least > 0 })
}

// checkShares holds what streams have carried against each other.
func checkShares(t testing.TB, r *run, most int) {
	t.Helper()
	if low, high := r.carried(); high-low > int64(most) {
		t.Errorf("streams have carried %d to %d bytes, more than %d apart", low, high, most)
	}
}
