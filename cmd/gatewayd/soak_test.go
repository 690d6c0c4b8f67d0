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

// What BenchmarkSoak does. One device in twenty is odd.
var (
	soakFor     = flag.Duration("soak-for", time.Hour, "how long clients come and go")
	soakDevices = flag.Int("soak-devices", 200, "clients at the portal at once")
	soakLines   = flag.Int("soak-lines", 40, "clients on PPPoE lines at once")
	soakProgram = flag.String(
		"soak-program", "", "gatewayd, in a file of that name; none: the tests' own, in which Go profiles memory")
	soakSeed = flag.Uint64("soak-seed", 0, "of what clients do; 0: another one each time")
)

const (
	soakIdle = time.Minute      // limits.idle_timeout
	echoPort = 7                // of the server
	shutPort = 9                // of the server, where nobody listens
	soakWait = 20 * time.Second // for an answer; what takes longer is lost
)

// soak runs a gateway with many clients for an hour (make soak). It records what the clients have seen, and compares
// that at the end with what the daemon and the RADIUS server recorded.
type soak struct {
	*world
	endsAt   time.Time
	began    time.Time
	links    *netlink.Handle // of the devices' namespace
	lower    netlink.Link    // what all devices are connected by
	access   *access         // what all lines are connected by
	control  *control.Client
	measured *meter

	mu       sync.Mutex                // guards what follows
	sessions map[string]*clientSession // by the session's identifier
	actions  map[string]int            // what clients did, how often
	faults   []string
	carried  []byte // what the RADIUS server asked for last
}

// clientSession is a session as its client saw it. Only the client's goroutine uses it, until all clients have ended.
type clientSession struct {
	user, id  string
	began     time.Time
	traffic   control.Traffic // bytes of IP packets that it sent, and that came
	uncounted bool            // it also had traffic that it has not counted
	endedBy   string          // how it ended
}

// devicesHost is the namespace of all devices at the portal.
const devicesHost = "devices"

// BenchmarkSoak has clients come, log in, pass traffic, renew their leases, log out, leave without a word and come
// back, at the portal and on PPPoE lines, beside devices that do odd things. It fails where the daemon grows, where a
// session is not started and stopped once, where it is counted other bytes than its client has passed, and where an
// answer is lost.
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

// newSoak starts the daemon and all that it needs.
func newSoak(t testing.TB) *soak {
	t.Helper()
	w := newNetwork(t)
	// The bridge before the gateway and the gateway's own machine have the settings that namespaces begin with.
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

// echoes answers datagrams at the server's port for that.
func (s *soak) echoes() {
	s.inHost("server", func() error {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: serverAddr.AsSlice(), Port: echoPort})
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { conn.Close() })
		if err := enlargeBuffers(conn); err != nil { // a busy machine's clients wait for it all at once
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

// fileBytes is what clients fetch by TCP now and then.
const fileBytes = 30_000

// oddDevices is how many there are: 5 % of all.
func (s *soak) oddDevices() int { return (*soakDevices + *soakLines) / 19 }

// isOver reports whether the time has come to go.
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

// endAll ends all sessions, and the daemon once it has told of that.
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

// fault says at once what went wrong, and that it did.
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

// sessionOf returns the life that a client at an address has now, new where its session is.
func (s *soak) sessionOf(addr netip.Addr, user string) (*clientSession, error) {
	var one control.Session
	var err error
	for range 100 { // the answer to the client may be first
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
