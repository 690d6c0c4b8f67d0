// The soak test: a gateway with many clients for an hour. Its parts are in the files soak*_test.go: devices are clients
// at the portal, subscribers are clients on PPPoE, the meter samples the daemon, and the judge compares at the end what
// clients, daemon and RADIUS servers say.

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The settings of BenchmarkSoak. It has clients at the portal, called devices, clients on PPPoE, called lines, and odd
// devices, one in twenty, which misbehave.
var (
	soakFor     = flag.Duration("soak-for", time.Hour, "how long clients come and go")
	soakDevices = flag.Int("soak-devices", 200, "clients at the portal at once")
	soakLines   = flag.Int("soak-lines", 40, "clients on PPPoE lines at once")
	soakProgram = flag.String(
		"soak-program", "", "file of the gatewayd that is tested; none: the tests' own, in which Go profiles memory")
	soakSeed = flag.Uint64("soak-seed", 0, "seed of what clients do; 0: another one each time")
)

const (
	soakIdle = time.Minute      // limits.idle_timeout
	echoPort = 7                // of the server
	shutPort = 9                // of the server, where nobody listens
	soakWait = 20 * time.Second // how long a client waits for an answer before it counts as lost
)

// soak runs a gateway with many clients for an hour (make soak). It records what the clients have seen, and compares
// that at the end with what the daemon and the RADIUS server recorded.
type soak struct {
	*world
	endsAt   time.Time
	began    time.Time
	links    *netlink.Handle // of the devices' namespace
	lower    netlink.Link    // the interface below those of all devices
	access   *access         // the interface of all lines
	control  *control.Client
	measured *meter

	mu       sync.Mutex                // guards what follows
	sessions map[string]*clientSession // by the session's identifier
	actions  map[string]int            // what clients did, how often
	faults   []string
	carried  []byte // the RADIUS server's last request that was answered
}

// clientSession is a session as its client saw it. Only the client's goroutine uses it, until all clients have ended.
type clientSession struct {
	user, id  string
	began     time.Time
	traffic   control.Traffic // bytes of IP packets that the client sent and received
	uncounted bool            // the client had further traffic, which it has not counted
	endedBy   string          // how it ended
}

// devicesHost is the namespace of all devices at the portal.
const devicesHost = "devices"

// BenchmarkSoak has clients come, log in, send and receive, renew their leases, log out, vanish and come back, at the
// portal and on PPPoE, beside odd devices. It fails if the daemon's memory or tables grow, if a session is not
// accounted with one Start and one Stop, if other bytes are counted for it than its client has passed, or if an answer
// is lost.
func BenchmarkSoak(b *testing.B) {
	s := newSoak(b)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	s.began = time.Now()
	s.endsAt = s.began.Add(*soakFor)
	fmt.Printf("soak of %v: %d clients at the portal, %d on lines, %d odd devices, -soak-seed %d\n",
		*soakFor, *soakDevices, *soakLines, s.oddDevices(), seed)
	s.run(seed)
	s.endAll()
	s.reportFaults()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(s.sessions)), "sessions")
}

// newSoak starts the daemon, RADIUS servers, and the site that clients visit.
func newSoak(t testing.TB) *soak {
	t.Helper()
	w := newNetwork(t)
	// The hub's netfilter sees the frames of its bridge, as by the kernel's default.
	w.sh(`ip netns exec $ID-hub sh -ec 'for call in /proc/sys/net/bridge/bridge-nf-call-*; do echo 1 >$call; done'
ip -n $ID-router addr flush dev lan0; ip -n $ID-router addr add 10.1.0.1/16 dev lan0
ip -n $ID-server route replace 10.1.0.0/16 via 192.0.2.1`)
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("soak/gatewayd.toml", "gatewayd.toml", w)
	if *soakProgram != "" {
		w.program = *soakProgram
	}
	w.certificate()
	w.site()
	s := &soak{world: w, sessions: map[string]*clientSession{}, actions: map[string]int{}}
	s.echoes()
	w.start()
	var err error
	s.control, err = w.control()
	must(t, err)
	s.connect()
	s.access = w.addUnaddressed().access()
	return s
}

// addDevices makes the namespace of the devices, with c0 in the LAN.
func (w *world) addDevices() {
	w.t.Helper()
	space := w.space(devicesHost)
	for _, conf := range []string{"all", "default"} {
		space.Set(w.t, "ipv4/conf/"+conf+"/arp_ignore", "1")
		space.Set(w.t, "ipv4/conf/"+conf+"/arp_announce", "2")
		space.Set(w.t, "ipv4/conf/"+conf+"/rp_filter", "0")
	}
	space.Veth(w.t, netnstest.End{Name: "c0"}, w.hub, netnstest.End{Name: "devices"})
	space.Enable(w.t, "c0")
	w.hub.Port(w.t, "devices", "br0")
}

// connect makes the namespace of the devices.
func (s *soak) connect() {
	s.t.Helper()
	s.addDevices()
	ns, err := netns.GetFromName(s.id + "-" + devicesHost)
	must(s.t, err)
	defer ns.Close()
	s.links, err = netlink.NewHandleAt(ns)
	must(s.t, err)
	s.t.Cleanup(s.links.Close)
	s.lower, err = s.links.LinkByName("c0")
	must(s.t, err)
}

// echoes has the server answer datagrams at echoPort, and requests of a file at TCP port 8081.
func (s *soak) echoes() {
	s.inHost("server", func() error {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: serverAddr.AsSlice(), Port: echoPort})
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { conn.Close() })
		if err := enlargeBuffers(conn); err != nil { // on a busy machine many clients send at once
			return err
		}
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort(b[:n], from)
			}
		}()
		l, err := net.Listen("tcp4", net.JoinHostPort(serverAddr.String(), "8081"))
		if err != nil {
			return err
		}
		file := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, fileBytes)) }
		files := &http.Server{Handler: http.HandlerFunc(file)}
		s.t.Cleanup(func() { files.Close() })
		go files.Serve(l)
		return nil
	})
}

// fileBytes is the size of the file that clients fetch by TCP now and then.
const fileBytes = 30_000

// oddDevices returns the number of odd devices: 5 % of all clients.
func (s *soak) oddDevices() int { return (*soakDevices + *soakLines) / 19 }

// isOver reports whether the soak's time is over.
func (s *soak) isOver() bool { return !time.Now().Before(s.endsAt) }

// run has all clients come and go until the end.
func (s *soak) run(seed uint64) {
	var all sync.WaitGroup
	source := func(n int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(n))) }
	n := 0
	start := func(activity func(*rand.Rand)) {
		n++
		r := source(n)
		all.Go(func() { activity(r) })
	}
	meter := s.meter()
	start(s.probeAdmitted)
	for slot := range *soakDevices {
		start(func(r *rand.Rand) { s.comeAndGo(slot, r) })
	}
	for slot := range *soakLines {
		start(func(r *rand.Rand) { s.dialAndHangUp(slot, r) })
	}
	for slot := range s.oddDevices() {
		start(func(r *rand.Rand) { s.beOdd(slot, r) })
	}
	start(s.oddServer)
	all.Wait()
	meter.finish()
}

// endAll ends all sessions, waits until the RADIUS server has been told, and ends the daemon.
func (s *soak) endAll() {
	s.t.Helper()
	_, err := s.control.Logout(s.t.Context(), control.LogoutRequest{All: true})
	must(s.t, err)
	eventually(s.t, "the end of all sessions", func() error {
		st, err := s.status()
		if err == nil && (st.Sessions[session.Authenticated] > 0 || st.Outbox > 0) {
			err = fmt.Errorf("%d sessions, %d messages to send", st.Sessions[session.Authenticated], st.Outbox)
		}
		return err
	})
	s.daemon.signalAndWait(syscall.SIGTERM)
}

// countAction counts what a client did.
func (s *soak) countAction(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions[label]++
}

// fault prints what went wrong and fails the benchmark, which goes on.
func (s *soak) fault(format string, args ...any) {
	text := fmt.Sprintf("minute %.1f: "+format, append([]any{time.Since(s.began).Minutes()}, args...)...)
	s.mu.Lock()
	s.faults = append(s.faults, text)
	n := len(s.faults)
	s.mu.Unlock()
	if n <= 100 {
		fmt.Println("FAULT", text)
	}
	s.t.Error(text)
}

// sessionOf returns the session that a client at an address has now, and records it if it is new.
func (s *soak) sessionOf(addr netip.Addr, user string) (*clientSession, error) {
	var one control.Session
	var err error
	for range 100 { // the client may be answered before the daemon lists the session
		one, err = s.control.Session(s.t.Context(), addr)
		if err == nil && one.ID != "" && one.State == session.Authenticated {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil || one.ID == "" {
		return nil, fmt.Errorf("gatewayd has no session of %s at %s: %+v, %v", user, addr, one, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sessions[one.ID]
	if l == nil {
		l = &clientSession{user: user, id: one.ID, began: time.Now()}
		s.sessions[one.ID] = l
	}
	return l, nil
}

// awaitEnd waits until a session has ended.
func (s *soak) awaitEnd(l *clientSession, addr netip.Addr) bool {
	for began := time.Now(); time.Since(began) < 3*soakIdle; time.Sleep(200 * time.Millisecond) {
		one, err := s.control.Session(s.t.Context(), addr)
		if err == nil && one.ID != l.id || err != nil && strings.Contains(err.Error(), "no client has") {
			return true
		}
	}
	s.fault("the session %s of %s at %s has not ended: %s", l.id, l.user, addr, l.endedBy)
	return false
}

// sleep waits for a random time of at most so long, or until the end.
func (s *soak) sleep(r *rand.Rand, most time.Duration) {
	time.Sleep(min(time.Duration(r.Float64()*float64(most)), max(0, time.Until(s.endsAt))))
}
