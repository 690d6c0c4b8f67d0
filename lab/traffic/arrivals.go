package traffic

import (
	"strconv"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const keepEnded = 8 // ended runs whose Stats are kept

// arrivals are the runs a server has taken, in the order they came. Only the
// server's thread changes them.
type arrivals struct {
	mu   sync.Mutex
	runs []*serverRun // guarded by mu
}

// serverRun is one Generator as its server sees it. All but run is the server
// thread's own; pacer is also read by Stats, under the arrivals' mu.
type serverRun struct {
	*run
	pacer *pacer
	live  int // streams accepted and not over; of TCP
	ended bool

	peers []peer    // where each stream is; of UDP
	heard time.Time // when its generator last said that it is there; of UDP
}

// find is for the server's thread, which needs no lock to read.
func (a *arrivals) find(id RunID) *serverRun {
	for _, r := range a.runs {
		if r.id == id {
			return r
		}
	}
	return nil
}

// addRun also forgets the oldest of the ended runs.
func (a *arrivals) addRun(h header) *serverRun {
	r := &serverRun{run: newRun(h.id, h.cfg)}
	r.sends = h.cfg.Direction == Down
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := 0
	for _, old := range a.runs {
		if old.ended {
			ended++
		}
	}
	kept := a.runs[:0:0]
	for _, old := range a.runs {
		if old.ended && ended > keepEnded {
			ended--
			continue
		}
		kept = append(kept, old)
	}
	a.runs = append(kept, r)
	return r
}

// sendsBy notes the thread that sends a run's payload.
func (a *arrivals) sendsBy(r *serverRun, p *pacer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.pacer = p
}

// endRun closes what a run holds once its last stream is over.
func (a *arrivals) endRun(r *serverRun) {
	if r.pacer != nil {
		r.pacer.stop()
	}
	r.finish()
	_ = r.closeSockets()
	a.mu.Lock()
	defer a.mu.Unlock()
	r.ended = true
}

func (a *arrivals) endAll() {
	for _, r := range a.runs {
		if !r.ended {
			a.endRun(r)
		}
	}
}

// stats are those of the newest n runs; the time of the server's own thread is with
// the first.
func (a *arrivals) stats(n int, receiving *socket.Clock) []Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := a.runs[max(0, len(a.runs)-n):]
	list := make([]Stats, max(1, len(runs)))
	list[0].addThread("receive", receiving)
	for i, r := range runs {
		r.fill(&list[i])
		if r.pacer != nil {
			list[i].addThread("send "+strconv.Itoa(i+1), &r.pacer.clock)
		}
	}
	return list
}

// Mark begins to count Stats.Shares of the newest n runs anew.
func (a *arrivals) Mark(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs[max(0, len(a.runs)-n):] {
		r.mark()
	}
}
