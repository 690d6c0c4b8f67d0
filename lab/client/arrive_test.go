// Tests of how clients of a pool act in turn: lease addresses, log in. inTurn calls a function for each client, at the
// Pace that it is given, and returns an outcome for each.

package client

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
)

// bareClients is a pool of clients that have no interfaces.
func bareClients(n int) *Pool {
	p := &Pool{}
	for i := range n {
		p.Clients = append(p.Clients, &Client{Num: i + 1, cfg: &p.cfg})
	}
	return p
}

func TestClientsActAtTheSameTime(t *testing.T) {
	const n = 50
	p := bareClients(n)
	var there atomic.Int32
	all := make(chan struct{})
	outcomes := p.inTurn(t.Context(), Pace{}, func(ctx context.Context, c *Client) (Tries, error) {
		if there.Add(1) == n {
			close(all)
		}
		<-all // nobody gets on before the last is there
		if c.Num%10 == 0 {
			return Tries{Count: 8, Refusal: errors.New("first no")}, errors.New("last no")
		}
		return Tries{Count: 1}, nil
	})
	through := 0
	for i, o := range outcomes {
		if o.Num != i+1 || o.Ms <= 0 || o.LateMs > o.Ms {
			t.Errorf("outcome %d: %+v", i, o)
		}
		if o.Succeeded() {
			through++
		} else if o.Tries != 8 || o.Refusal != "first no" || o.Error != "last no" {
			t.Errorf("gave up: %+v", o)
		}
	}
	if err := FirstFailure(outcomes); through != 45 || err == nil ||
		!strings.Contains(err.Error(), "client 10: last no") ||
		!strings.Contains(err.Error(), "4 more") {
		t.Errorf("%d through, %v", through, err)
	}
	if err := FirstFailure(outcomes[:9]); err != nil {
		t.Errorf("of nine that are through: %v", err)
	}
}

func TestPaceBoundsHowManyAreAtIt(t *testing.T) {
	var now, most atomic.Int32
	outcomes := bareClients(40).inTurn(t.Context(), Pace{Parallel: 3}, func(context.Context, *Client) (Tries, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return Tries{Count: 1}, nil
	})
	if most.Load() > 3 || FirstFailure(outcomes) != nil {
		t.Errorf("%d at once, want at most 3; %v", most.Load(), FirstFailure(outcomes))
	}
}

// TestTurnsAreSpaced: clients come no sooner than their turn, and what they wait
// for counts from then.
func TestTurnsAreSpaced(t *testing.T) {
	start := time.Now()
	begun := make([]time.Duration, 20)
	outcomes := bareClients(20).inTurn(
		t.Context(), Pace{PerSecond: 200}, func(_ context.Context, c *Client) (Tries, error) {
			begun[c.Num-1] = time.Since(start)
			return Tries{Count: 1}, nil
		})
	for i, offset := range begun {
		turn := time.Duration(i) * 5 * time.Millisecond
		late := time.Duration(outcomes[i].LateMs * float64(time.Millisecond))
		if offset < turn || offset-turn < late-time.Millisecond {
			t.Errorf("client %d began after %v, %v after its turn; it was due after %v", i+1, offset, late, turn)
		}
	}
}

func TestImpatientClientsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := bareClients(3).inTurn(t.Context(), Pace{Parallel: 1, Patience: 20 * time.Millisecond}, func(
			ctx context.Context, c *Client) (Tries, error) {
			<-ctx.Done()
			return Tries{Count: 1}, context.Cause(ctx)
		})
		for _, o := range outcomes {
			if o.Error != "not through after 20ms" {
				t.Errorf("client %d: %q", o.Num, o.Error)
			}
		}
		if outcomes[0].Tries != 1 || outcomes[2].Tries != 0 {
			t.Errorf("%d tries of the first and %d of the last, who did not begin", outcomes[0].Tries, outcomes[2].Tries)
		}
	})
}

func TestNobodyLogsInWithoutAnAddress(t *testing.T) {
	outcomes := bareClients(1).Login(t.Context(), Admission{Kind: AdmitUAM, Portal: "127.0.0.1:1"}, Pace{})
	if o := outcomes[0]; o.Succeeded() || o.Tries != 0 || !strings.Contains(o.Error, "no address") {
		t.Errorf("%+v", o)
	}
}

func TestDialIn(t *testing.T) {
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	local := netip.MustParseAddr("127.0.0.1")
	var l net.Listener
	err = ns.Do(func() (err error) {
		if err := upLoopback(); err != nil {
			return err
		}
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("hello"))
			c.Close()
		}
	}()
	at := l.Addr().String()
	conn, err := dialIn(t.Context(), ns, local, at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, tcp := conn.(*net.TCPConn); !tcp || conn.RemoteAddr().String() != at {
		t.Errorf("a %T to %s", conn, conn.RemoteAddr())
	}
	b := make([]byte, 10)
	if n, err := conn.Read(b); string(b[:n]) != "hello" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	l.Close()
	if _, err := dialIn(t.Context(), ns, local, at); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("to a closed port: %v", err)
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("the port is reached from outside the namespace")
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lab is gone"))
	if _, err := dialIn(gone, ns, local, at); err == nil || !strings.Contains(err.Error(), "the lab is gone") {
		t.Errorf("after the end: %v", err)
	}
	if _, err := dialIn(t.Context(), ns, local, "localhost:80"); err == nil {
		t.Error("a name was dialled")
	}
	if _, err := dialIn(t.Context(), ns, local, "192.0.2.1:80"); err == nil ||
		!strings.Contains(err.Error(), "unreachable") {
		t.Errorf("without a route: %v", err)
	}
}

func upLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// TestLogInsLeaveFilesForAllElse: under any limit of open files, some.
func TestLogInsLeaveFilesForAllElse(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 1, 64: 32, 256: 128, 2048: 1024, 20_000: 20_000 - ReservedFiles, 1 << 20: maxPersonas, 1<<64 - 1: maxPersonas,
	} {
		if got := maxSockets(files); got != want {
			t.Errorf("limit %d: %d sockets of logins, want %d", files, got, want)
		}
	}
}

// TestTheFirstComesAfter: a host whose turn is later begins later, by the clock of all.
func TestTheFirstComesAfter(t *testing.T) {
	const after = 30 * time.Millisecond
	outcomes := bareClients(3).inTurn(
		t.Context(), Pace{PerSecond: 100, After: after}, func(context.Context, *Client) (Tries,
			error) {
			return Tries{Count: 1}, nil
		})
	for i, o := range outcomes {
		if want := float64(after/time.Millisecond) + 10*float64(i); math.Abs(o.TurnMs-want) > 1e-6 || o.LateMs < 0 {
			t.Errorf("turn %d at %g ms, %g ms late; want %g", i, o.TurnMs, o.LateMs, want)
		}
	}
}
