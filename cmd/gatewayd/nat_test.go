package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// The tests of the translation of addresses. translating makes a world with it, and its clients ann and bob; an
// identHost (ident_test.go) is a server on the WAN to which clients connect.

// outside is the router's address towards the server.
var outside = netip.MustParseAddr("192.0.2.1")

// configure appends to the daemon's configuration.
func (w *world) configure(more string) {
	w.t.Helper()
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(w.t, err)
	must(w.t, os.WriteFile(path, append(text, "\n"+more+"\n"...), 0o600))
}

// translating makes a world with the lines of [datapath] in path and two clients, which log in as ann and frugal. Then
// it restarts the daemon with more appended to its configuration, where ANN and BOB stand for the clients' addresses.
func translating(t *testing.T, path, more string) (w *world, ann, bob *client) {
	t.Helper()
	w = newWorld(t)
	w.Path = path
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	if strings.Contains(path, "tun") {
		w.sh("ip -n $ID-router addr flush dev lan0")
	}
	w.sh(`ip -n $ID-server addr add 192.0.2.3/24 dev s0`)
	w.start()
	ann, bob = w.client(), w.client()
	ann.logIn("ann")
	bob.logIn("frugal")
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.configure(strings.NewReplacer("ANN", ann.addr.String(), "BOB", bob.addr.String()).Replace(more))
	w.start()
	return w, ann, bob
}

// sourceSeenBy connects a client to an identHost and returns the address and port that the identHost sees.
func (c *client) sourceSeenBy(to *identHost) netip.AddrPort {
	c.w.t.Helper()
	before := to.lastConn // and it stays the identHost's last connection
	c.connect(to)
	defer func() { to.lastConn = before }()
	return to.lastConn.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// serving listens with TCP and UDP at a client's port.
func (c *client) serving(port uint16) (l *net.TCPListener, u *net.UDPConn) {
	c.w.t.Helper()
	at := net.IP(c.addr.AsSlice())
	c.w.inHost(c.host, func() (err error) {
		if l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: at, Port: int(port)}); err == nil {
			u, err = net.ListenUDP("udp4", &net.UDPAddr{IP: at, Port: int(port)})
		}
		return err
	})
	c.w.t.Cleanup(func() { l.Close(); u.Close() })
	return l, u
}

// reaches connects a host to an address that leads to the listener l, sends a byte, and returns the address and port
// from which l was reached.
func (w *world) reaches(host string, to netip.AddrPort, l *net.TCPListener) (netip.AddrPort, error) {
	w.t.Helper()
	var near net.Conn
	var err error
	w.inHost(host, func() error {
		near, err = net.DialTimeout("tcp4", to.String(), 20*time.Second)
		return nil
	})
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer near.Close()
	l.SetDeadline(time.Now().Add(2 * time.Minute))
	far, err := l.Accept()
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer far.Close()
	if _, err = near.Write([]byte("x")); err == nil {
		_, err = far.Read(make([]byte, 1))
	}
	return far.RemoteAddr().(*net.TCPAddr).AddrPort(), err
}

// TestNAT: on every data path the WAN sees the router's address instead of the clients', except for nat.except.
// Forwarded ports lead to a client that is logged in, by TCP and UDP, from outside and from another client, and this
// traffic is counted and limited as all of the client's. Long: the steps of one run, each of which needs the state that
// the one before left.
func TestNAT(t *testing.T) {
	for name, path := range map[string]string{"ebpf": "", "nfqueue": `kind = "nfqueue"`,
		"nfqueue-fast": "kind = \"nfqueue\"\nfast = true", "tun": `kind = "tun"`, "tun-fast": "kind = \"tun\"\nfast = true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ann, bob := translating(t, path, `[nat]
masquerade = true
except = ["192.0.2.3"]
inbound = ["192.0.2.3"]
[[nat.forward]]
proto = "tcp"
ports = 8080
to = "ANN:7000"
[[nat.forward]]
proto = "udp"
ports = "7000-7009"
to = "BOB"`)
			server, except := w.identHost("192.0.2.2"), w.identHost("192.0.2.3")
			if got := ann.sourceSeenBy(server); got.Addr() != outside {
				t.Errorf("the server sees %v", got)
			}
			if got := ann.sourceSeenBy(except); got.Addr() != ann.addr {
				t.Errorf("the exception sees %v, not %v", got, ann.addr)
			}
			w.hidesClientAddress(t, ann, server)
			if w.unsolicitedArrives(t, "192.0.2.2", ann, server) {
				t.Error("a host of the WAN reaches a client's own address")
			}
			if !w.unsolicitedArrives(t, "192.0.2.3", ann, server) {
				t.Error("nat.inbound does not reach a client's own address")
			}
			st, err := w.status()
			must(t, err)
			if st.NAT != "masquerade at wan0, 2 forwards" ||
				!strings.Contains(w.sh("gatewayd status --socket $DIR/run/control.sock"), "nat         masquerade at wan0") {
				t.Errorf("the status says %q", st.NAT)
			}

			l, _ := ann.serving(7000)
			if got, err := w.reaches("server", netip.AddrPortFrom(outside, 8080), l); err != nil || got.Addr() != serverAddr {
				t.Errorf("forwarded from %v, %v", got, err)
			}
			datagrams := w.forwardsDatagrams(bob) // while bob has no connection that others add packets to
			before := ann.session()
			if got, err := w.reaches(bob.host, netip.AddrPortFrom(outside, 8080), l); err != nil || got.Addr() != outside {
				t.Errorf("forwarded from a client by %v, %v", got, err)
			}
			if after := ann.session(); after.DownPackets < before.DownPackets+3 {
				t.Errorf("another client's connection is not counted: %+v, then %+v", before.Traffic, after.Traffic)
			}
			w.nextSessionGetsNothing(t, ann, bob, server, l)
			datagrams.exhaust(bob)
			ann.logOut()
			if got, err := w.try("nsenter --net=/run/netns/$ID-server curl -s --max-time 1 http://192.0.2.1:8080/"); err == nil {
				t.Errorf("a client that is not logged in gets what is forwarded: %s", got)
			}
			w.checkDetach(t)
		})
	}
}

// forwardsDatagrams sends UDP to a client's forwarded port: all of it is counted.
func (w *world) forwardsDatagrams(bob *client) *flow {
	w.t.Helper()
	_, u := bob.serving(7005)
	before := bob.session()
	var out *net.UDPConn
	w.inHost("server", func() (err error) {
		out, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: outside.AsSlice(), Port: 7005})
		return err
	})
	f := &flow{sender: out, receiver: u}
	f.running.Go(f.receive)
	w.t.Cleanup(func() { out.Close(); u.Close(); f.running.Wait() })
	f.sendFew(100)
	f.expectAll(w.t, "forwarded datagrams")
	eventually(w.t, "they are counted", func() error {
		after := bob.session()
		if got, want := after.DownBytes-before.DownBytes, f.traffic(false).DownBytes; got != want ||
			after.DownPackets-before.DownPackets != 100 {
			return fmt.Errorf("%d bytes in %d packets, want %d in 100", got, after.DownPackets-before.DownPackets, want)
		}
		return nil
	})
	return f
}

// exhaust sends more than a client's quota of a million bytes, and checks that the rest is dropped.
func (f *flow) exhaust(bob *client) {
	t := bob.w.t
	t.Helper()
	f.sendFew(800)
	eventually(t, "the quota ends the session", func() error {
		if s := bob.session(); s.State == session.Authenticated {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	const packet = datagramBytes + udpHeaders // the last packet may exceed the quota
	if got := f.received.Load() * packet; got >= 1_000_000+packet {
		t.Errorf("%d bytes arrived, of 1,000,000 that are allowed", got)
	}
}

// checkDetach ends the daemon, whose rules then stay, and detaches, after which none is left.
func (w *world) checkDetach(t *testing.T) {
	t.Helper()
	w.daemon.signalAndWait(syscall.SIGTERM)
	if rules := w.sh("nsenter --net=/run/netns/$ID-router nft list ruleset"); !strings.Contains(
		rules, "gatewayd-nat-lan0") {
		t.Errorf("without the daemon nothing translates:\n%s", rules)
	}
	w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml")
	if rules := w.sh("nsenter --net=/run/netns/$ID-router nft list ruleset"); rules != "" {
		t.Errorf("after detach:\n%s", rules)
	}
}

// TestNATPorts: each client has exactly the ports that the formula of RFC 7422 gives it, and gatewayd whois finds the
// client by them. Long: the steps of one run, each of which needs the state that the one before left.
func TestNATPorts(t *testing.T) {
	t.Parallel()
	w, ann, bob := translating(t, "", "")
	low, high := ann, bob // the client with the lower address, and the other
	if high.addr.Less(low.addr) {
		low, high = high, low
	}
	w.daemon.signalAndWait(syscall.SIGTERM)
	// One client for each address of nat.source: it has 64,512 ports.
	w.configure(fmt.Sprintf(`[dhcp]
pools = ["%s-%[1]s", "%s-%[2]s"]
[flowlog]
enabled = true
[nat]
source = ["192.0.2.7", "192.0.2.9"]
ports_per_client = 40000
[[nat.forward]]
proto = "tcp"
ports = 30000
to = "%[2]s:7000"`, high.addr, low.addr))
	if out, err := w.try("nsenter --net=/run/netns/$ID-router gatewayd check-config $DIR/gatewayd.toml"); err == nil ||
		!strings.Contains(out, "nat.source: 192.0.2.7 is in a network of wan0, which does not have it") ||
		!strings.Contains(out, "ip addr add 192.0.2.7/32 dev wan0") {
		t.Errorf("check-config says %s, %v", out, err)
	}
	w.sh(`ip -n $ID-router addr add 192.0.2.7/32 dev wan0; ip -n $ID-router addr add 192.0.2.9/32 dev wan0`)
	w.start()
	server := w.identHost("192.0.2.2")
	for c, want := range map[*client]string{low: "192.0.2.7", high: "192.0.2.9"} {
		for range 5 {
			got := c.sourceSeenBy(server)
			if got.Addr().String() != want || got.Port() < 1024 || got.Port() > 41023 {
				t.Errorf("%v has %v, want %s and a port up to 41023", c.addr, got, want)
			}
			eventually(t, "whois finds the client", func() error {
				out, err := w.try(fmt.Sprintf("gatewayd whois --config $DIR/gatewayd.toml %v", got))
				if err == nil && !strings.Contains(out, c.addr.String()) {
					err = errors.New(out)
				}
				return err
			})
		}
	}
	w.checkForeignPorts(t, low, high, server)

	w.daemon.signalAndWait(syscall.SIGTERM)
	text, err := os.ReadFile(filepath.Join(w.Dir, "gatewayd.toml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(w.Dir, "gatewayd.toml"), []byte(strings.NewReplacer("40000", "7", "30000",
		"1024").Replace(string(text))), 0o600))
	w.start()
	for i, c := range []*client{low, high} {
		ports := map[uint16]bool{}
		first := uint16(1024 + 7*i)
		var in *net.UDPConn
		w.inHost("server", func() (err error) {
			in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: serverAddr.AsSlice(), Port: 9000 + i})
			return err
		})
		defer in.Close()
		for range 12 { // five more than it has ports
			w.inHost(c.host, func() error {
				out, err := net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
				if err == nil {
					t.Cleanup(func() { out.Close() })
					_, err = out.Write([]byte("x"))
				}
				return err
			})
		}
		for len(ports) < 7 {
			in.SetReadDeadline(time.Now().Add(2 * time.Minute))
			_, from, err := in.ReadFromUDPAddrPort(make([]byte, 1))
			must(t, err)
			if from.Addr().String() != "192.0.2.7" || from.Port() < first || from.Port() > first+6 {
				t.Fatalf("%v has %v, want 192.0.2.7 and a port from %d to %d", c.addr, from, first, first+6)
			}
			ports[from.Port()] = true
		}
		c.sourceSeenBy(server) // its packets follow the datagrams, so these have arrived or will not
		if waiting(t, in) {
			_, from, err := in.ReadFromUDPAddrPort(make([]byte, 1))
			t.Errorf("%v has an eighth port: %v, %v", c.addr, from, err)
		}
	}
}
