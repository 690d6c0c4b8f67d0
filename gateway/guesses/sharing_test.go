// Tests of guards that count together, by a real server of Redis. clientA is a client's MAC address, clientAddr(i) that
// of client i of many (attempts_test.go).

package guesses

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// sharedGuard runs the guard of a gateway until the test ends.
func sharedGuard(t *testing.T, server *redistest.Server, name string) *Guard {
	t.Helper()
	store := cluster.Open(cluster.Options{Addresses: []string{server.Addr}, Prefix: "test:", Gateway: name, Instance: name,
		Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
	g := &Guard{}
	run, leave := g.Share(store, "guesses")
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { leave(); stop(); running.Wait(); store.Close() })
	netnstest.Await(t, "the gateway knows the store's time", func() error {
		if g.sharing.now() == 0 {
			return fmt.Errorf("%+v", store.State())
		}
		return nil
	})
	return g
}

// as has a client try something.
func as(t *testing.T, g *Guard, client Attempter, what func(*Try)) {
	t.Helper()
	try, err := g.Enter(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer try.Leave()
	what(try)
}

// counts waits until two guards count so many failures, and reports where one counts more.
func counts(t *testing.T, label string, want int, one, two *Guard, count func(*Guard) int) {
	t.Helper()
	for name, g := range map[string]*Guard{"one": one, "two": two} {
		netnstest.Await(t, label+", at gateway "+name, func() error {
			if n := count(g); n < want || want == 0 && n > 0 {
				return fmt.Errorf("%d failures instead of %d", n, want)
			}
			return nil
		})
		if n := count(g); n != want {
			t.Errorf("%s: gateway %s counts %d failures, want %d", label, name, n, want)
		}
	}
}

func ofName(name string) func(*Guard) int {
	return func(g *Guard) int { return g.names.recent(name, nobody) }
}

// TestAlternatingGateways: who alternates between two gateways has as many tries as on one: for a name, a device, an
// access line and a room. Then both gateways hold, and others are not held. A login clears at both. The store has no
// name. Long: a table of what is guessed.
func TestAlternatingGateways(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	guards := []*Guard{sharedGuard(t, server, "gw1"), sharedGuard(t, server, "gw2")}
	at := func(n int) Attempter { return Attempter{MAC: clientAddr(n)} }
	behind := func(line string, n int) Attempter { return Attempter{MAC: clientAddr(n), AccessLine: line} }
	tests := []struct {
		what    string
		free    int
		client  func(n int) Attempter
		another Attempter // which is held, too
		wrong   func(try *Try, n int)
		wait    func(*Try) time.Duration
		other   func(*Try) time.Duration // of something else
		right   func(*Try)
		count   func(*Guard) int
	}{
		{"name", freeNameFailures, at, at(900), func(try *Try, _ int) { try.Wrong("Ann") },
			func(try *Try) time.Duration { return try.Wait("ann") }, func(try *Try) time.Duration { return try.Wait("bob") },
			func(try *Try) { try.Right("ann") }, ofName("ann")},
		{"device", freeFailures, func(int) Attempter { return Attempter{MAC: clientA} }, Attempter{MAC: clientA},
			func(try *Try, _ int) { try.WrongName() }, func(try *Try) time.Duration { return try.Wait("") }, nil,
			func(try *Try) { try.RightCode() }, func(g *Guard) (n int) {
				as(t, g, Attempter{MAC: clientA}, func(try *Try) { n = try.FailedCodes() })
				return n
			}},
		{"line", freeNameFailures, func(n int) Attempter { return behind("port 7", 100+n) }, behind("port 7", 901),
			func(try *Try, n int) { try.Wrong(fmt.Sprint("made up ", n)) },
			func(try *Try) time.Duration { return try.Wait("eve") }, nil,
			func(try *Try) { try.Right("eve") }, func(g *Guard) int {
				g.accessLines.mu.Lock()
				defer g.accessLines.mu.Unlock()
				if f := g.accessLines.failed[g.accessLines.shown.key("port 7")]; f != nil {
					return f.count
				}
				return 0
			}},
		{"room", freeNameFailures, func(n int) Attempter { return at(200 + n) }, at(902),
			func(try *Try, _ int) { try.WrongRoom("204") },
			func(try *Try) time.Duration { return try.guard.rooms.wait("204", try.client) },
			func(try *Try) time.Duration { return try.guard.rooms.wait("205", try.client) },
			func(try *Try) { try.RightRoom("204") }, func(g *Guard) int { return g.rooms.recent("204", nobody) }},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			for n := range tt.free {
				as(t, guards[n%2], tt.client(n), func(try *Try) {
					if wait := tt.wait(try); wait != 0 {
						t.Errorf("try %d waits %v", n+1, wait)
					}
					tt.wrong(try, n)
				})
				counts(t, fmt.Sprint("after try ", n+1), n+1, guards[0], guards[1], tt.count)
			}
			for i, g := range guards {
				as(t, g, tt.another, func(try *Try) {
					tt.wrong(try, 50) // begins the wait again
					if tt.wait(try) == 0 {
						t.Errorf("gateway %d lets one more try", i+1)
					}
					if tt.other != nil && tt.other(try) != 0 {
						t.Errorf("gateway %d holds another %s", i+1, tt.what)
					}
				})
			}
			counts(t, "then", tt.free+2, guards[0], guards[1], tt.count)
			as(t, guards[1], tt.another, tt.right)
			counts(t, "after a login", 0, guards[0], guards[1], tt.count)
		})
	}
	for _, text := range []string{"ann", "made up", "port 7", "204"} {
		for _, set := range []string{"gw1", "gw2"} {
			all := server.CLI("HGETALL", "test:guesses:"+set)
			if !strings.Contains(all, "\nn") && !strings.HasPrefix(all, "n") {
				t.Fatalf("gateway %s has no record of a name: %s", set, all)
			}
			if text != "204" && strings.Contains(all, text) {
				t.Errorf("the store shows %q: %s", text, all)
			}
		}
	}
}

// TestCodesOfTwoGateways: wrong codes at one gateway use up what another one allows.
func TestCodesOfTwoGateways(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := sharedGuard(t, server, "gw1"), sharedGuard(t, server, "gw2")
	n := 0
	netnstest.Await(t, "the other gateway holds codes", func() error {
		n++
		as(t, one, Attempter{MAC: clientAddr(n)}, func(try *Try) { try.WrongCode() })
		if two.codes.used.Has(codeRate, 1, budget.Now()) {
			return fmt.Errorf("after %d wrong codes it does not", n)
		}
		return nil
	})
	if n < codeRate.AtOnce {
		t.Errorf("it holds codes after %d wrong ones", n)
	}
	as(t, two, Attempter{MAC: clientA}, func(try *Try) {
		if wait := try.Wait("ann"); wait != 0 {
			t.Errorf("a password waits %v", wait)
		}
	})
}

// TestGuessesWithoutStore: while the store is away each gateway counts alone, and when it is back what all have
// counted. An emptied store does not have anything counted again, and a gateway that is new is told all that counts.
func TestGuessesWithoutStore(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := sharedGuard(t, server, "gw1"), sharedGuard(t, server, "gw2")
	wrong := func(g *Guard, from, n int) {
		for i := range n {
			as(t, g, Attempter{MAC: clientAddr(from + i)}, func(try *Try) { try.Wrong("ann") })
		}
	}
	wrong(one, 0, 1)
	counts(t, "with the store", 1, one, two, ofName("ann"))
	server.Kill()
	wrong(one, 10, 4)
	wrong(two, 20, 4)
	counts(t, "without the store", 5, one, two, ofName("ann"))
	server.Restart()
	counts(t, "the store is back", 9, one, two, ofName("ann"))
	server.CLI("FLUSHALL")
	wrong(two, 30, 1)
	counts(t, "the store was emptied", 10, one, two, ofName("ann"))
	three := sharedGuard(t, server, "gw3")
	counts(t, "a new gateway", 10, one, three, ofName("ann"))
	as(t, three, Attempter{MAC: clientA}, func(try *Try) { try.Right("ann") })
	counts(t, "after a login there", 0, one, two, ofName("ann"))
}

// TestSharedGuessesAreBounded: made-up names fill no memory, neither here nor in the store, and what is too old is
// deleted there. What cannot be read is not used.
func TestSharedGuessesAreBounded(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	g := sharedGuard(t, server, "gw1")
	s := g.sharing
	put := func(key string, r record) {
		content, err := json.Marshal(r)
		netnstest.Must(t, err)
		s.Put("gw2", key, cluster.Record{Version: 1, Owner: "gw2", Content: content})
	}
	for i := range mostKnown + 1000 {
		put(fmt.Sprint("n", i), record{Began: 1, Count: 1, At: s.now()})
	}
	for i := range mostTold + 1000 {
		s.count(fmt.Sprint("n", i), 1)
	}
	if len(s.known) != mostKnown || len(s.own) != mostTold || len(g.names.others) != maxNames {
		t.Errorf("%d of others, %d own, %d names", len(s.known), len(s.own), len(g.names.others))
	}
	for _, key := range []string{"", "d12", "dxxxxxxxxxxxx", "z", "n"} {
		s.Put("gw2", key, cluster.Record{Version: 1, Content: []byte("{")})
		put(key, record{Began: 2, Count: 1 << 62, At: 1 << 62, Cleared: -1 << 62})
	}
	stored := func(want string) {
		t.Helper()
		netnstest.Await(t, want+" records in the store", func() error {
			if n := server.CLI("HLEN", "test:guesses:gw1"); n != want {
				return fmt.Errorf("%s", n)
			}
			return nil
		})
	}
	stored(fmt.Sprint(mostTold))
	s.mu.Lock()
	s.sweep(s.now() + forgetAfter.Microseconds())
	s.mu.Unlock()
	stored("0")
	if len(s.own) != 0 {
		t.Errorf("%d own records are left", len(s.own))
	}
}

// TestLoginsClearWhatWasBefore: a login elsewhere clears failures of before it, however late it is told, and none after
// it. Failures count by when they were.
func TestLoginsClearWhatWasBefore(t *testing.T) {
	g := sharedGuard(t, redistest.Start(t, redistest.Place{}), "gw1")
	s := g.sharing
	ago := func(d time.Duration) int64 { return s.now() - d.Microseconds() }
	for _, tt := range []struct {
		label string
		is    record
		want  int
	}{
		{"long ago", record{Began: 1, Count: 5, At: ago(forgetAfter)}, 0},
		{"a minute ago", record{Began: 2, Count: 5, At: ago(time.Minute)}, 5},
		{"told again", record{Began: 2, Count: 5, At: ago(time.Minute)}, 5},
		{"a login before", record{Began: 2, Count: 5, At: ago(time.Minute), Cleared: ago(2 * time.Minute)}, 5},
		{"two more", record{Began: 2, Count: 7, At: ago(time.Minute), Cleared: ago(2 * time.Minute)}, 7},
		{"a login after", record{Began: 3, At: ago(0), Cleared: ago(time.Second)}, 0},
		{"one after that", record{Began: 3, Count: 1, At: ago(0), Cleared: ago(time.Second)}, 1},
	} {
		content, err := json.Marshal(tt.is)
		netnstest.Must(t, err)
		s.Put("gw2", g.names.key("ann"), cluster.Record{Version: 1, Owner: "gw2", Content: content})
		if n := g.names.recent("ann", nobody); n != tt.want {
			t.Errorf("%s: %d failures, want %d", tt.label, n, tt.want)
		}
	}
}
