package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Shape is what a link does to the frames that leave one of its ends. The zero value does nothing.
type Shape struct {
	// RateMbps is the most that leaves, Mbit/s: bytes as the kernel counts them, with the Ethernet header of 14 and
	// without preamble, checksum and gap. 0: no limit.
	RateMbps float64       `json:"rate_mbps,omitempty"`
	Delay    time.Duration `json:"delay,omitempty"` // of each frame
	LossPct  float64       `json:"loss_pct,omitempty"`
}

// What a shaped link lets through and holds. A burst makes up for a CPU that was away for a time; a queue keeps the
// link busy while a TCP connection that has lost a segment halves its window. Both are at least a few dozen frames.
const (
	burstTime  = 5 * time.Millisecond
	queueTime  = 25 * time.Millisecond
	leastBurst = 8 * 1514
	leastQueue = 64 * 1514
)

// netemQueue is how many frames a link with a delay holds, those on their way with those that wait for its rate.
const netemQueue = 20000

// apply puts a token bucket (tc-tbf) at the end, and behind it or alone what delays and loses (tc-netem).
func (s Shape) apply(link string) error {
	parent := []string{"root", "handle", "1:"}
	if s.RateMbps > 0 {
		bytes := func(d time.Duration) int { return int(s.RateMbps * 1e6 / 8 * d.Seconds()) }
		rate := append(parent, "tbf", "rate", fmt.Sprintf("%.0fbit", s.RateMbps*1e6),
			"burst", fmt.Sprint(max(leastBurst, bytes(burstTime))), "limit", fmt.Sprint(max(leastQueue, bytes(queueTime))))
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

func tcQdisc(link string, args []string) error {
	argv := append([]string{"qdisc", "replace", "dev", link}, args...)
	if out, err := exec.Command("tc", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
