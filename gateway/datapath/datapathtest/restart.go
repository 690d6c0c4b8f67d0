package datapathtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// sending admits Alice, makes Bob known, and begins flows: Alice's in both directions, and strangers' (strange).
func (w *World) sending(t *testing.T) (up, down *Flow, strange []*Flow) {
	t.Helper()
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	up, down = w.Up(t, w.Alice), w.Down(t, w.Alice)
	strange = w.strangers(t)
	for _, f := range append(strange, up, down) {
		f.Begin()
	}
	return up, down, strange
}

// outlives ends the gateway's data path three times by end, under traffic, and opens it again: unauthenticated clients'
// packets never pass, and admitted clients' pass as the path promises.
func (w *World) outlives(t *testing.T, manner string, end func()) {
	up, down, strange := w.sending(t)
	up.Passes(t, "before "+manner)
	down.Passes(t, "before "+manner)
	epoch := w.Counters(t, w.Alice.Addr).Epoch
	for range 3 {
		end()
		if w.path.Unattended {
			up.Passes(t, "up after "+manner)
			down.Passes(t, "down after "+manner)
		} else {
			up.Stops(t, "up after "+manner)
			down.Stops(t, "down after "+manner)
		}
		must(t, w.Open())
		switch {
		case w.path.Keeps:
			w.lists(t, w.Alice.Addr)
			w.lease(t, w.Bob)
		case w.path.Unattended:
			w.lists(t, w.Alice.Addr, w.Bob.Addr)
		default:
			w.lists(t)
			up.Stops(t, "up before the successor's clients are set")
			w.admit(t, w.Alice)
			w.lease(t, w.Bob)
		}
		up.Passes(t, "up with a successor")
		down.Passes(t, "down with a successor")
	}
	for _, f := range append(strange, up, down) {
		f.Halt()
	}
	noneCame(t, strange)
	w.checkSuccessorCounts(t, up, down, epoch)
	if w.path.Unattended {
		w.endsUnattended(t, end)
	}
}

// checkSuccessorCounts compares counters with flows over several processes.
func (w *World) checkSuccessorCounts(t *testing.T, up, down *Flow, epoch uint64) {
	t.Helper()
	now := w.Counters(t, w.Alice.Addr).Epoch
	if !w.path.Unattended {
		if now == epoch {
			t.Error("counting began anew, but the epoch is the same")
		}
		return
	}
	if now != epoch {
		t.Error("another epoch, though counting went on")
	}
	up.Whole(t, "up")
	down.Whole(t, "down")
	netnstest.Await(t, "a count of all processes", func() error {
		got := w.tally(t, w.Alice)
		return errors.Join(compareCounters("up", up, got.upPackets, got.upBytes),
			compareCounters("down", down, got.downPackets, got.downBytes))
	})
}

// compareCounters compares counters with a flow: each packet that came is counted, and none that was not sent. What the
// machine's backlogs have dropped (Whole) may be on either side of the gateway.
func compareCounters(way string, f *Flow, packets, bytes uint64) error {
	if came, sent := f.Came(), f.Sent(); packets < came || packets > sent || bytes != packets*(headers+FlowBytes) {
		return fmt.Errorf("counted %d packets, %d bytes %s; %d were sent, and %d came", packets, bytes, way, sent, came)
	}
	return nil
}

// endsUnattended: while no gateway runs, a client's time limit and quota end its traffic: exactly, or soon after they
// are reached if the path Keeps.
func (w *World) endsUnattended(t *testing.T, end func()) {
	flow := w.Up(t, w.Alice)
	flow.Begin()
	until := time.Now().Add(time.Second)
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = until })))
	end()
	time.Sleep(time.Until(until) + 20*time.Millisecond)
	if w.path.Keeps { // the process that keeps the clients ends it, as soon as it runs
		flow.Ends(t, "after its time, without a gateway")
	} else {
		flow.Stops(t, "after its time, without a gateway")
	}
	must(t, w.Open())
	quota := w.tally(t, w.Alice).upBytes + 50*(headers+FlowBytes)
	from := flow.Came()
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Limits.UpBytes = quota })))
	end()
	netnstest.Await(t, "the rest of a quota", func() error {
		if flow.Came()-from < 50 {
			return errors.New("not used up")
		}
		return nil
	})
	if w.path.Keeps {
		flow.Ends(t, "after its quota, without a gateway")
		came := flow.Came()
		must(t, w.Open())
		flow.Stops(t, "after its quota, with a successor")
		if n := w.tally(t, w.Alice).upBytes; n < quota || flow.Came() != came {
			t.Errorf("%d bytes of a quota of %d are counted, and %d packets came to a successor", n, quota, flow.Came()-came)
		}
		return
	}
	flow.Stops(t, "after its quota, without a gateway")
	must(t, w.Open())
	if n := flow.Came() - from; n != 50 {
		t.Errorf("%d packets of a quota of 50 came", n)
	}
}
