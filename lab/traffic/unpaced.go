package traffic

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// unpacedBytes is the total size of the socket buffers of an unpaced run. It is the data on its way at 1 Gbit/s and 60
// ms.
const unpacedBytes = 8 << 20

// Unpaced reports whether a run has no schedule, so that it sends as fast as TCP allows.
func (c Config) Unpaced() bool { return c.RateBps == 0 }

// sendUnpaced sends on every stream as much as its socket takes. It ends by Close, after MaxSeconds, or when all
// streams have ended.
func (p *pacer) sendUnpaced() {
	open := 0
	for i := range p.run.streams {
		if err := p.Add(p.run.streams[i].fd, int32(i+1), unix.EPOLLOUT); err != nil {
			p.run.end(&p.run.streams[i], err)
			continue
		}
		open++
	}
	p.run.open.Store(true)
	end := time.Now().Add(time.Duration(p.run.cfg.MaxSeconds) * time.Second)
	events := make([]unix.EpollEvent, 512)
	for open > 0 && !p.Stopping() {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		ready, err := p.Wait(events, int(left.Milliseconds())+1)
		if err != nil {
			return
		}
		for _, ev := range ready {
			if ev.Fd == socket.BellID {
				return
			}
			st := &p.run.streams[ev.Fd-1]
			n, err := p.write(st, p.payload)
			st.bytes.Add(int64(n))
			p.run.bursts.Add(1)
			if err != nil || st.over.Load() {
				p.Remove(st.fd)
				p.run.end(st, err)
				open--
			}
		}
	}
}
