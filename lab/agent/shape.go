package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Shape limits the rate of frames that leave one end of a link, delays them and loses some. The zero value does none of
// it.
type Shape struct {
	// RateMbps is the highest rate, Mbit/s. It counts bytes as the kernel does: with the Ethernet header of 14 bytes,
	// without preamble, checksum and gap. 0: no limit.
	RateMbps float64       `json:"rate_mbps,omitempty"`
	Delay    time.Duration `json:"delay,omitempty"` // of each frame
	LossPct  float64       `json:"loss_pct,omitempty"`
}

// Sizes of a rate-limited link's bucket and queue. The bucket lets a burst of frames pass at once, which makes up for
// moments in which the CPU did something else. The queue keeps the link busy while a TCP connection that has lost a
// segment sends less.
const (
	burstTime = 5 * time.Millisecond  // the bucket holds what the rate carries in this time
	queueTime = 25 * time.Millisecond // and so does the queue
	minBurst  = 8 * 1514              // but the bucket holds at least so many bytes
	minQueue  = 64 * 1514             // and the queue so many
)

// netemQueue is the number of frames that a delayed link holds. It includes those that wait for the rate.
const netemQueue = 20000

// apply sets up queueing disciplines on the interface: a token bucket (tc-tbf) for the rate, and netem (tc-netem) for
// delay and loss, inside the token bucket if there are both.
func (s Shape) apply(link string) error {
	parent := []string{"root", "handle", "1:"}
	if s.RateMbps > 0 {
		bytes := func(d time.Duration) int { return int(s.RateMbps * 1e6 / 8 * d.Seconds()) }
		rate := append(parent, "tbf", "rate", fmt.Sprintf("%.0fbit", s.RateMbps*1e6),
			"burst", fmt.Sprint(max(minBurst, bytes(burstTime))), "limit", fmt.Sprint(max(minQueue, bytes(queueTime))))
		if err := tcQdisc(link, rate); err != nil {
			return err
		}
		parent = []string{"parent", "1:1", "handle", "10:"}
	}
	if s.Delay == 0 && s.LossPct == 0 {
		return nil
	}
	netem := append(parent, "netem", "limit", fmt.Sprint(netemQueue))
	if s.Delay > 0 {
		netem = append(netem, "delay", fmt.Sprintf("%dus", s.Delay.Microseconds()))
	}
	if s.LossPct > 0 {
		netem = append(netem, "loss", fmt.Sprintf("%g%%", s.LossPct))
	}
	return tcQdisc(link, netem)
}

// tcQdisc sets a queueing discipline of an interface.
func tcQdisc(link string, args []string) error {
	argv := append([]string{"qdisc", "replace", "dev", link}, args...)
	if out, err := exec.Command("tc", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
