package pulse

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// run calls send for each pulse, with the time by which it is late, and receive for each socket that has something,
// until the thread is closed. Pulses that the thread slept through are sent, all at once.
func run(t *socket.Thread, send func(late int64), receive func(id int32)) {
	// The highest niceness: a thread that does not send on time shows no outage of less than its delay.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	start, wait := time.Now(), t.Watch()
	events := make([]unix.EpollEvent, 64)
	for next := time.Duration(0); !t.Stopping(); {
		if now := time.Since(start); now >= next {
			send(int64(now - next))
			next += Interval
			continue
		}
		if !socket.Sleep(wait, next-time.Since(start)) {
			continue
		}
		ready, err := t.Wait(events, 0)
		if err != nil {
			return
		}
		for _, e := range ready {
			if e.Fd != socket.BellID {
				receive(e.Fd)
			}
		}
	}
}
