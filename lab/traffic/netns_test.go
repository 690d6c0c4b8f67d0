package traffic

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// The helpers of this file set up generators and servers of TCP or UDP in two network namespaces, and read the counts
// of both ends.

// namespace is a network namespace with helpers to listen and to connect in it.
type namespace struct{ *netnstest.Space }

// pair is a client and a server namespace joined by a link.
type pair struct{ client, server *namespace }

// newPair makes two namespaces with a link between them.
func newPair(t testing.TB) pair {
	t.Helper()
	p := labtest.NewPair(t)
	return pair{&namespace{p.Client}, &namespace{p.Server}}
}

// listen opens a listening TCP socket in s that no server reads. It returns the socket and its address.
func (s *namespace) listen(t testing.TB) (fd int, addr netip.AddrPort) {
	t.Helper()
	var err error
	s.Do(func() { fd, err = new(Server).listenTCP(netip.AddrPortFrom(labtest.ServerIP, 0)) })
	if err != nil {
		t.Fatal(err)
	}
	return fd, netip.AddrPortFrom(labtest.ServerIP, boundPort(fd))
}

// boundPort is the port of a bound socket.
func boundPort(fd int) uint16 {
	switch a, _ := unix.Getsockname(fd); a := a.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
}

// addr returns the address at which a server listens: ip and its port.
func (s *Server) addr(ip netip.Addr) netip.AddrPort {
	switch p := s.protocol.(type) {
	case *streamServer:
		return netip.AddrPortFrom(ip, boundPort(p.listener))
	case *datagramServer:
		return netip.AddrPortFrom(ip, boundPort(p.fd))
	}
	return netip.AddrPort{}
}

// dial returns a function that makes a TCP socket in s and connects it to addr. It may be called on any thread.
func (s *namespace) dial(addr netip.AddrPort) DialFunc {
	return func(ctx context.Context, _ int) (fd int, err error) {
		s.Do(func() { fd, err = NewSocket(addr.Addr(), false) })
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

// serve starts a server of TCP or UDP in s, at ip and a free port.
func (s *namespace) serve(t testing.TB, ip netip.Addr, udp bool) *Server {
	t.Helper()
	var srv *Server
	var err error
	s.Do(func() { srv, err = Serve(context.Background(), netip.AddrPortFrom(ip, 0), udp) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv
}

// serve starts a server of TCP in p's server namespace.
func (p pair) serve(t testing.TB) (*Server, netip.AddrPort) {
	t.Helper()
	s := p.server.serve(t, labtest.ServerIP, false)
	return s, s.addr(labtest.ServerIP)
}

// bothCounts returns the counts of a run at its sending and its receiving end.
func bothCounts(g *Generator, s *Server) (sender, receiver counts) {
	far := s.countsOf(g.run.id)
	if g.run.sends {
		return g.counts(), far
	}
	return far, g.counts()
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

// runs returns the states of a generator's run at its sending and its receiving end.
func runs(g *Generator, a *Server) (sender, receiver *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	far := a.runByID(g.run.id).run
	if g.run.sends {
		return g.run, far
	}
	return far, g.run
}

// carried returns the payload of the stream that carried least, and of the one that carried most, bytes.
func (r *run) carried() (least, most int64) {
	least = r.streams[0].bytes.Load()
	for i := range r.streams {
		n := r.streams[i].bytes.Load()
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// awaitPayload waits until payload of each stream has arrived.
func awaitPayload(t testing.TB, g *Generator, a *Server) {
	t.Helper()
	_, receiver := runs(g, a)
	labtest.Await(t, "every stream's payload", func() bool { least, _ := receiver.carried(); return least > 0 })
}

// checkShares requires that no two streams of a run carried bytes that differ by more than most.
func checkShares(t testing.TB, r *run, most int) {
	t.Helper()
	if low, high := r.carried(); high-low > int64(most) {
		t.Errorf("streams have carried %d to %d bytes, more than %d apart", low, high, most)
	}
}
