// Tests of two gateways on one LAN, of which one serves at a time.

package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// pairWorld is a world with two gateways, each a world of its own with its files and its daemon.
//
//	clients ── hub ┬─ lan0 gw1 wan0 ─┬── s0 server: RADIUS, the store
//	               └─ lan0 gw2 wan0 ─┘
type pairWorld struct {
	*world
	gateways [2]*pairGateway
	store    *redistest.Server
}

// pairGateway is one of two gateways.
type pairGateway struct {
	*world
	Name       string
	keepalived *process
}

// newPair makes the world, without daemons. lines are those of [pair].
func newPair(t testing.TB, lines string) *pairWorld {
	t.Helper()
	program, err := exec.LookPath("gatewayd")
	must(t, err)
	w := &world{t: t, id: fmt.Sprint("w", worlds.Add(1)), Dir: t.TempDir(), Secret: "a secret of 24 characters",
		program: program, host: "server"}
	w.hub = w.space("hub")
	out, server := w.space("out"), w.space("server")
	w.hub.Bridge(t, netnstest.End{Name: "br0"})
	w.hub.Enable(t, "br0")
	out.Bridge(t, netnstest.End{Name: "br0"})
	out.Enable(t, "br0")
	server.Veth(t, netnstest.End{Name: "s0"}, out, netnstest.End{Name: "server"})
	server.Enable(t, "s0", netip.PrefixFrom(serverAddr, 24))
	out.Plug(t, "server")
	w.sh(`ip -n $ID-server route add 10.1.0.0/24 via 192.0.2.1 rto_min 5s`)
	p := &pairWorld{world: w}
	for i := range p.gateways {
		name := fmt.Sprint("gw", i+1)
		g := &pairGateway{Name: name, world: &world{t: t, id: w.id, Dir: filepath.Join(w.Dir, name), Secret: w.Secret,
			Pins: "/sys/fs/bpf/" + w.id + name, program: program, host: name, Lines: lines}}
		space := w.space(name)
		space.Veth(t, netnstest.End{Name: "lan0"}, w.hub, netnstest.End{Name: name})
		space.Veth(t, netnstest.End{Name: "wan0"}, out, netnstest.End{Name: name})
		space.Enable(t, "lan0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(2 + i)}), 24))
		space.Enable(t, "wan0", netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i)}), 24))
		w.hub.Plug(t, name)
		out.Plug(t, name)
		space.Set(t, "ipv4/ip_forward", "1")
		must(t, os.MkdirAll(g.Dir, 0o700))
		g.write("pair/gatewayd.toml", "gatewayd.toml", g)
		p.gateways[i] = g
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.try(`tail -n 30 $DIR/gw1/gatewayd.log $DIR/gw2/gatewayd.log
				grep -Hi "entering\|script\|advert\|removed" $DIR/gw1/keepalived.log $DIR/gw2/keepalived.log`))
		}
	})
	p.store = redistest.Start(t, redistest.Place{Also: "192.0.2.2", Port: 6379,
		Inside: []string{"nsenter", "--net=/run/netns/" + w.id + "-server"}})
	w.auth, w.acct = w.radiusAt("192.0.2.2", "auth", 1812), w.radiusAt("192.0.2.2", "acct", 1813)
	return p
}

// startAll starts both daemons, and keepalived of each, and returns the active one and the standby, which is ready.
func (p *pairWorld) startAll() (active, standby *pairGateway) {
	p.t.Helper()
	for _, g := range p.gateways {
		g.start()
	}
	for _, g := range p.gateways {
		if !strings.Contains(g.Lines, `by = "store"`) {
			g.startKeepalived()
		}
	}
	active, standby = p.gateways[0], p.gateways[1]
	eventually(p.t, "one gateway serves", func() error {
		if standby.role() == control.Active {
			active, standby = standby, active
		}
		return active.is(control.Active)
	})
	standby.awaitReady()
	return active, standby
}

// pair returns the gateway's state; nil: it does not answer.
func (g *pairGateway) pair() *control.Pair {
	s, err := g.status()
	if err != nil {
		return nil
	}
	return s.Pair
}

func (g *pairGateway) role() control.Role {
	if p := g.pair(); p != nil {
		return p.Role
	}
	return ""
}

// is returns an error unless the gateway has a role.
func (g *pairGateway) is(role control.Role) error {
	if p := g.pair(); p == nil || p.Role != role {
		return fmt.Errorf("%s: %+v", g.Name, p)
	}
	return nil
}

func (g *pairGateway) await(role control.Role) {
	g.t.Helper()
	eventually(g.t, g.Name+" is "+string(role), func() error { return g.is(role) })
}

func (g *pairGateway) awaitReady() {
	g.t.Helper()
	eventually(g.t, g.Name+" is ready", func() error {
		if p := g.pair(); p == nil || !p.Ready {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// startKeepalived starts keepalived with the configuration that gatewayd prints.
func (g *pairGateway) startKeepalived() {
	g.t.Helper()
	file := filepath.Join(g.Dir, "keepalived.conf")
	g.sh(g.program + " cluster keepalived -c $DIR/gatewayd.toml > $DIR/keepalived.conf")
	g.keepalived = g.spawn("keepalived.log", "keepalived", "-n", "-l", "-D", "-f", file,
		"-p", filepath.Join(g.Dir, "ka.pid"), "-r", filepath.Join(g.Dir, "vrrp.pid"))
}

// crash leaves the gateway as a power cut does: without daemon, keepalived, links and the addresses that move.
func (g *pairGateway) crash() {
	g.t.Helper()
	if g.keepalived != nil {
		g.sh(`kill -9 $(cat $DIR/vrrp.pid) $(cat $DIR/ka.pid)`)
		<-g.keepalived.ended
	}
	g.kill()
	g.sh(`for i in lan0 wan0; do ip -n $ID-` + g.Name + ` link set $i down; done
		for a in "10.1.0.1/24 dev lan0" "192.0.2.1/24 dev wan0"; do ip -n $ID-` + g.Name + ` addr del $a || true; done`)
}

// at returns a client as a gateway has it.
func (c *client) atGateway(g *pairGateway) *client {
	other := *c
	other.w = g.world
	return &other
}

// awaitSession waits until a gateway has a session of a client, or none where id is "".
func (g *pairGateway) awaitSession(c *client, id string) (s control.Session) {
	g.t.Helper()
	eventually(g.t, g.Name+" has the session "+id, func() error {
		d, err := g.control()
		if err == nil {
			s, err = d.Session(g.t.Context(), c.addr)
		}
		if err == nil && s.ID != id {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	return s
}

// pings sends a few packets to the server, of which at least one is answered.
func (c *client) pings() {
	c.w.t.Helper()
	eventually(c.w.t, "the client reaches the server", func() error {
		_, err := c.try("ping -c 1 -W 1 192.0.2.2")
		return err
	})
}

// counts returns how many records a session has of each kind.
func (p *pairWorld) counts(id string) map[string]int {
	all := map[string]int{}
	for _, kind := range kinds(distinct(p.t.(*testing.T), p.acct.accounting(id))) {
		all[kind]++
	}
	return all
}

// TestPairCrash: when the gateway that serves is lost, the other one serves, with the clients' sessions: they need no
// login, and counts and accounting go on. The lost one comes back as the standby. With a lease in the store as with
// keepalived.
func TestPairCrash(t *testing.T) {
	for _, lines := range []string{``, `by = "store"`} {
		t.Run(lines, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, lines)
			active, standby := p.startAll()
			ann := p.client().atGateway(active)
			began := ann.logIn("ann")
			standby.awaitSession(ann, began.ID)
			ann.pings()
			active.crash()
			standby.await(control.Active)
			ann = ann.atGateway(standby)
			ann.pings()
			if s := ann.session(); s.ID != began.ID || s.State != "authenticated" ||
				s.Began.Sub(began.Began).Abs() > time.Second {
				t.Errorf("%+v, before %+v", s, began)
			}
			p.acct.awaitAccounting("Interim-Update", began.ID)
			active.sh(`ip -n $ID-` + active.Name + ` link set lan0 up; ip -n $ID-` + active.Name + ` link set wan0 up`)
			active.start()
			active.awaitReady()
			if err := active.is(control.Standby); err != nil {
				t.Error(err)
			}
			active.awaitSession(ann, began.ID)
			ann.logOut()
			active.awaitSession(ann, "")
			p.acct.awaitAccounting("Stop", began.ID)
			if n := p.counts(began.ID); n["Start"] != 1 || n["Stop"] != 1 {
				t.Errorf("the server was told %v", n)
			}
		})
	}
}

// TestPairRestart: with accounting = "restart" each session has one Stop, and another one in its place has one Start,
// when the other gateway takes over; and no more when that one is killed and serves again.
func TestPairRestart(t *testing.T) {
	t.Parallel()
	p := newPair(t, `accounting = "restart"`)
	active, standby := p.startAll()
	ann := p.client().atGateway(active)
	began := ann.logIn("ann")
	standby.awaitSession(ann, began.ID)
	active.crash()
	standby.await(control.Active)
	p.acct.awaitAccounting("Stop", began.ID)
	ann = ann.atGateway(standby)
	next := ann.session()
	if next.ID == began.ID || next.State != "authenticated" {
		t.Errorf("%+v", next)
	}
	ann.pings()
	standby.kill()
	standby.start()
	standby.await(control.Active)
	standby.awaitSession(ann, next.ID)
	ann.logOut()
	p.acct.awaitAccounting("Stop", next.ID)
	for _, id := range []string{began.ID, next.ID} {
		if n := p.counts(id); n["Start"] != 1 || n["Stop"] != 1 {
			t.Errorf("of %s the server was told %v", id, n)
		}
	}
}

// TestPairSwitches: sessions survive planned switches, and those while the store is away or after somebody emptied it.
// A session that ended at one gateway is over at the other one. Long: each switch needs what the one before left.
func TestPairSwitches(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	active, standby := p.startAll()
	ann, bob := p.client().atGateway(active), p.client().atGateway(active)
	began, other := ann.logIn("ann"), bob.logIn("guest-bob")
	swap := func() {
		t.Helper()
		standby.awaitReady()
		active.keepalived.signalAndWait(syscall.SIGTERM)
		standby.await(control.Active)
		active.await(control.Standby)
		active.startKeepalived()
		active, standby = standby, active
		ann.atGateway(active).pings()
	}
	for range 3 {
		standby.awaitSession(ann, began.ID)
		standby.awaitSession(bob, other.ID)
		swap()
	}
	bob = bob.atGateway(active)
	bob.logOut()
	standby.awaitSession(bob, "")

	p.store.CLI("FLUSHALL")
	eventually(t, "the store has the sessions again", func() error {
		if got := p.store.CLI("HGET", "gateweigh:lead:campus", "complete"); got == "" || got == "0" {
			return fmt.Errorf("complete in %q", got)
		}
		return nil
	})
	standby.awaitSession(ann, began.ID)
	swap()

	p.store.Kill()
	swap()
	ann = ann.atGateway(active)
	if s := ann.session(); s.ID != began.ID || s.State != "authenticated" {
		t.Errorf("without the store: %+v", s)
	}
	p.store.Restart()
	standby.awaitReady()
	eventually(t, "both know who serves", func() error {
		a, b := active.pair(), standby.pair()
		if a == nil || b == nil || a.Active != active.Name || b.Active != active.Name {
			return fmt.Errorf("%+v, %+v", a, b)
		}
		return nil
	})
	ann.logOut()
	standby.awaitSession(ann, "")
	p.acct.awaitAccounting("Stop", began.ID)
	if n := p.counts(began.ID); n["Start"] != 1 || n["Stop"] != 1 {
		t.Errorf("the server was told %v", n)
	}
}

// TestPairSplit: when both gateways believe that they serve, the later one does, and the other is the standby. So is
// one that wakes up after it was stopped: a session that ended meanwhile is over there, too.
func TestPairSplit(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	active, standby := p.startAll()
	ann := p.client().atGateway(active)
	began := ann.logIn("ann")
	standby.awaitSession(ann, began.ID)
	must(t, active.daemon.cmd.Process.Signal(syscall.SIGSTOP))
	standby.await(control.Active)
	ann = ann.atGateway(standby)
	ann.pings()
	ann.logOut()
	must(t, active.daemon.cmd.Process.Signal(syscall.SIGCONT))
	active.await(control.Standby)
	active.awaitSession(ann, "")
	active.awaitReady()
	if err := standby.is(control.Active); err != nil {
		t.Error(err)
	}
	// Told by hand, although the other one serves.
	active.sh(active.program + ` --socket $DIR/run/control.sock cluster become active`)
	eventually(t, "the other one has noticed", func() error {
		a, b := active.pair(), standby.pair()
		if a == nil || b == nil || a.Role == control.Active && b.Role == control.Active || a.Term < 3 {
			return fmt.Errorf("%+v, %+v", a, b)
		}
		return nil
	})
	eventually(t, "one serves in the end", func() error {
		if a, b := active.role(), standby.role(); (a == control.Active) == (b == control.Active) {
			return fmt.Errorf("%s, %s", a, b)
		}
		return nil
	})
	if out := p.sh(active.program + ` --socket $DIR/gw1/run/control.sock status`); !strings.Contains(out, "of campus, ") {
		t.Error(out)
	}
}
