package traffic

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const (
	// A sending thread that did not run for a while sends the missed bursts of the last catchUpTime, or the last
	// catchUpBursts, whichever are more. It drops the others, because real clients send no such bursts.
	catchUpTime   = 10 * time.Millisecond
	catchUpBursts = 8
	// A stream whose socket is full sends up to debtBursts missed bursts later. It drops the others.
	debtBursts = 4
	// prime sends up to primeRounds single segments on each stream. In primePause a round is acknowledged.
	primeRounds = 128
	primePause  = time.Millisecond
	// primeGroup is the number of streams that are primed at the same time. More would overrun the links' queues (2000
	// packets), and losses make windows smaller.
	primeGroup = 250
)

// pacer sends the bursts of a run from one locked thread.
//
//	burst k leaves at t0 + (k + u)·interval on stream k mod n, u random in [0, 1)
//
// All streams have one schedule: each gets exactly its share, and every interval has exactly one burst. The burst's
// moment in the interval is random. Otherwise two generators with strict periods would keep the phase between their
// bursts. A router that is still awake from the other lab's burst costs up to 40 % less, and the phase would decide
// which one. Dropped bursts move t0 and not k, so the shares stay even.
type pacer struct {
	*socket.Thread
	run           *run
	interval      float64   // ns from burst to burst
	burst         int       // bytes
	payload       []byte    // long enough for a burst and the debt before it
	scheduleStart time.Time // t0 before bursts were dropped; set before run.open
	t0            time.Time
	sent          int64   // k: bursts since t0
	place         float64 // u: moment of burst k in its interval
	chance        *rand.Rand
	write         writeFunc
}

// writeFunc hands a stream's payload to the kernel and returns how many bytes it took,
// also with an error: 0 when the socket is full.
type writeFunc func(st *stream, payload []byte) (int, error)

func tcpWrite(st *stream, payload []byte) (int, error) { return socket.SendSome(st.fd, payload) }

// startPacer starts a thread that sends on all streams of r until Close is called, MaxSeconds have passed, or all
// streams have ended.
func startPacer(r *run, write writeFunc) (*pacer, error) {
	p, err := newPacer(r, write)
	if err != nil {
		return nil, err
	}
	work := p.loop
	if r.cfg.Unpaced() {
		work = p.sendUnpaced
	}
	p.Start(context.Background(), "gw-send", work)
	return p, nil
}

func newPacer(r *run, write writeFunc) (*pacer, error) {
	t, err := socket.NewThread()
	if err != nil {
		return nil, err
	}
	p := &pacer{Thread: t, run: r, interval: r.cfg.burstInterval(), burst: r.cfg.burstBytes(), write: write}
	p.chance = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	p.payload = make([]byte, (1+debtBursts)*p.burst)
	// Random bytes: a tunnel that compresses must not look cheap.
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p.payload) // never fails
	return p, nil
}

// loop sends the bursts by the schedule.
func (p *pacer) loop() {
	wait := p.Bell()
	if !p.run.cfg.UDP {
		p.prime()
	}
	p.scheduleStart = time.Now()
	p.t0 = p.scheduleStart
	p.run.open.Store(true)
	end := p.t0.Add(time.Duration(p.run.cfg.MaxSeconds) * time.Second)
	for !p.Stopping() {
		now := time.Now()
		if now.After(end) || p.noneLeft() {
			return
		}
		if ahead := p.due().Sub(now); ahead > 0 {
			// Each wait is computed from the schedule, so that errors do not add up.
			socket.Sleep(wait, min(ahead, end.Sub(now)+1))
			continue
		}
		p.step(now)
	}
}

// prime enlarges the TCP windows of all streams before the schedule begins. TCP puts at most half of the largest window
// that the receiver has offered into one buffer. Receivers begin with 64 KB and offer more with each buffer that
// arrives, whatever its length. Without prime, a stream of two bursts a second would send halves of bursts for ten
// seconds and more. A few dozen single segments are enough.
func (p *pacer) prime() {
	for group := range slices.Chunk(p.run.streams, primeGroup) {
		p.primeTogether(group)
	}
}

func (p *pacer) primeTogether(group []stream) {
	wait, segment := p.Bell(), p.payload[:min(p.run.cfg.MSS, p.burst)]
	for range primeRounds {
		if p.Stopping() {
			return
		}
		narrow := false
		for i := range group {
			st := &group[i]
			if st.over.Load() {
				continue
			}
			info, err := unix.GetsockoptTCPInfo(st.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil && int(info.Snd_wnd) >= 2*p.burst { // the window that the peer offers
				continue
			}
			narrow = true
			// Bytes not taken are not lost payload: the schedule has not begun.
			if n, err := socket.SendSome(st.fd, segment); err == nil {
				st.bytes.Add(int64(n))
				p.run.primed.Add(int64(n))
			}
		}
		if !narrow {
			return
		}
		socket.Sleep(wait, primePause)
	}
}

// noneLeft reports whether all streams have ended. It looks only at the beginning of a round over all streams, and is
// false otherwise.
func (p *pacer) noneLeft() bool {
	if p.sent%int64(len(p.run.streams)) != 0 {
		return false
	}
	for i := range p.run.streams {
		if !p.run.streams[i].over.Load() {
			return false
		}
	}
	return true
}

// due is the moment of the next burst.
func (p *pacer) due() time.Time {
	return p.t0.Add(time.Duration((float64(p.sent) + p.place) * p.interval))
}

// step drops bursts that are too late and sends the burst that is due.
func (p *pacer) step(now time.Time) {
	late := now.Sub(p.due())
	p.run.lateness.Store(max(int64(late), p.run.lateness.Load()))
	allowed := max(float64(catchUpTime), catchUpBursts*p.interval)
	if forget := int64((float64(late) - allowed) / p.interval); forget > 0 {
		p.t0 = p.t0.Add(time.Duration(float64(forget) * p.interval))
		p.run.shortfall.Add(forget * int64(p.burst))
	}
	st := &p.run.streams[p.sent%int64(len(p.run.streams))]
	p.sent++
	p.place = p.chance.Float64()
	p.send(st)
}

// send writes the stream's debt (bytes that were due before and that the full socket did not take) and one burst, in
// one call. Bytes that the socket does not take become debt, up to debtBursts.
func (p *pacer) send(st *stream) {
	r := p.run
	owed := st.debt + p.burst
	if st.over.Load() {
		r.shortfall.Add(int64(owed))
		st.debt = 0
		return
	}
	r.bursts.Add(1)
	n, err := p.write(st, p.payload[:owed])
	st.bytes.Add(int64(n))
	most := debtBursts * p.burst
	if err != nil {
		r.end(st, err)
		most = 0
	}
	st.debt = min(owed-n, most)
	r.shortfall.Add(int64(owed - n - st.debt))
}
