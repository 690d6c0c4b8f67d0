// Tests of the days of two gateways, in a real server of Redis.

package daily

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// member is a scene whose gateway has a store. Its clock stands still while it has.
type member struct {
	*scene
	server *redistest.Server
	name   string
	leave  func() // ends what follows the store, and leaves the book as kill -9 does
}

// join begins a gateway in which devices have two hours and 1000 bytes a day, and rooms three hours.
func join(t *testing.T, server *redistest.Server, name string) *member {
	m := &member{scene: newScene(t, Amount{2 * time.Hour, 1000}, Amount{Time: 3 * time.Hour}), server: server, name: name}
	m.store.Close()
	m.start()
	return m
}

// start begins the gateway with the book and the table that there are.
func (m *member) start() {
	store := cluster.Open(cluster.Options{Addresses: []string{m.server.Addr}, Prefix: "test:", Gateway: m.name,
		Instance: m.name, Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
	var leave func()
	m.joining = func() { leave = m.Share(store, "day") }
	m.open()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	m.leave = sync.OnceFunc(func() {
		stop()
		running.Wait()
		leave()
		store.Close()
		m.store.Close()
	})
	m.t.Cleanup(m.leave)
}

// awaits waits until client 1 in room 204 has so much left, to the minute.
func (m *member) awaits(label string, left time.Duration, bytes uint64) {
	m.t.Helper()
	netnstest.Await(m.t, m.name+": "+label, func() error {
		l, err := m.Left(DeviceOf(client(1).MAC), RoomOf("204"))
		if err == nil && ((l.Time-left).Abs() > time.Minute/2 || l.Bytes != bytes) {
			err = fmt.Errorf("%v and %d bytes are left, want %v and %d", l.Time, l.Bytes, left, bytes)
		}
		return err
	})
}

// lasts lets the open sessions last longer, and tells other gateways, as a minute does.
func (m *member) lasts(d time.Duration) {
	m.t.Helper()
	m.table.Age(d)
	m.must(m.tellAll())
}

// TestDayIsUsedAtGateways: what a device uses at one gateway counts at the other one, of a session that is open and of
// one that has ended, once: also after a gateway is killed, and where the store was away or emptied. While it is away
// each goes on with what it knows. Long: the steps of one run, each of which needs the state that the one before left.
func TestDayIsUsedAtGateways(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := join(t, server, "gw1"), join(t, server, "gw2")
	both := func(label string, left time.Duration, bytes uint64) {
		t.Helper()
		one.awaits(label, left, bytes)
		two.awaits(label, left, bytes)
	}
	one.must(one.begin(1, "204", session.Limits{}))
	one.use(1, 100)
	one.lasts(30 * time.Minute)
	both("a session is open", 90*time.Minute, 900)
	one.end(1, false)
	one.leave()
	one.start() // the end is known from the accounting alone
	both("after kill -9", 90*time.Minute, 900)
	one.table.Account()

	two.must(two.begin(1, "204", session.Limits{})) // the device has gone there
	if l := two.limits(1); (l.SessionTimeout-90*time.Minute).Abs() > time.Minute || l.TotalBytes != 900 {
		t.Errorf("the session at the second gateway has %+v", l)
	}
	two.use(1, 200)
	two.lasts(30 * time.Minute)
	both("a session is open there", time.Hour, 700)
	two.leave()
	two.start()
	both("after another kill -9", time.Hour, 700)

	server.Kill()
	one.has("without the store", 1, "204", time.Hour, 700)
	one.must(one.begin(1, "204", session.Limits{}))
	one.use(1, 300)
	one.lasts(20 * time.Minute)
	one.has("used here", 1, "204", 40*time.Minute, 400)
	two.has("not known here", 1, "204", time.Hour, 700)
	server.Restart()
	both("the store is back", 40*time.Minute, 400)
	server.CLI("FLUSHALL")
	two.lasts(10 * time.Minute)
	both("the store was emptied", 30*time.Minute, 400)

	one.lasts(31 * time.Minute)
	netnstest.Await(t, "nothing is left of the day", func() error {
		two.look(false)
		if n := two.table.Number(); n != 0 {
			return fmt.Errorf("%d sessions go on", n)
		}
		return nil
	})
	if err := two.begin(1, "", session.Limits{}); !errors.Is(err, ErrUsedUp) {
		t.Errorf("with nothing left: %v", err)
	}
	two.must(two.begin(2, "", session.Limits{})) // another device
}

// TestDaysOfGatewaysEnd: what was used on a former day is deleted in the store, and counts at no other gateway.
func TestDaysOfGatewaysEnd(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := join(t, server, "gw1"), join(t, server, "gw2")
	one.must(one.begin(1, "204", session.Limits{}))
	one.lasts(30 * time.Minute)
	one.end(1, true)
	one.must(one.settle())
	two.awaits("the day", 90*time.Minute, 1000)
	two.leave()
	two.wall, two.line = two.wall.Add(24*time.Hour), two.line.Add(24*time.Hour)
	two.start()
	netnstest.Await(t, "what the first gateway tells has come", func() error {
		two.shared.mu.Lock()
		defer two.shared.mu.Unlock()
		if n := len(two.shared.others); n != 2 {
			return fmt.Errorf("%d holders", n)
		}
		return nil
	})
	two.has("the day after", 1, "204", 2*time.Hour, 1000)
	one.leave()
	one.wall, one.line = two.wall, two.line
	one.start()
	one.must(one.tidy())
	netnstest.Await(t, "the former day's records are deleted", func() error {
		if n := server.CLI("HLEN", "test:day:gw1"); n != "0" {
			return errors.New(n)
		}
		return nil
	})
}
