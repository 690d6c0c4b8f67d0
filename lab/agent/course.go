package agent

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Course says how a host's meter is followed over a window.
type Course struct {
	Step   time.Duration `json:"step"`   // from one reading to the next
	Length time.Duration `json:"length"` // of the window
	Links  []string      `json:"links"`  // whose sent bytes count
}

// mostOfStep is the largest share of the time that readings of a course may take of a CPU: where they cost more, fewer
// are made.
const mostOfStep = 0.01

// course is a window that is being followed.
type course struct {
	Course
	stop chan struct{}
	done chan struct{} // closed when the fields below are final

	moments []meter.Moment
	err     error
}

// StartCourse begins to read the host's meter in steps, until TakeCourse or a step after the window's length. It ends
// an earlier course.
func (a *Agent) StartCourse(_ context.Context, q Course) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return errNoMeter
	}
	if q.Step <= 0 {
		return errors.New("a course without steps")
	}
	if a.course != nil {
		close(a.course.stop)
	}
	a.course = &course{Course: q, stop: make(chan struct{}), done: make(chan struct{})}
	go a.follow(a.course)
	return nil
}

// follow reads the meter at multiples of the course's step. A reading that would come too soon after one that was
// dear is left out.
func (a *Agent) follow(c *course) {
	defer close(c.done)
	start := time.Now()
	for next := time.Duration(0); ; {
		if c.err = a.readMoment(c, &next, start); c.err != nil || next > c.Length+c.Step {
			return
		}
		select {
		case <-c.stop:
			c.err = a.readMoment(c, &next, start)
			return
		case <-time.After(time.Until(start.Add(next))):
		}
	}
}

// readMoment adds a reading to the course, and sets when the next one is due after start.
func (a *Agent) readMoment(c *course, next *time.Duration, start time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sampler == nil {
		return errNoMeter
	}
	m, cost, err := a.sampler.Moment(c.Links)
	if err != nil {
		return err
	}
	c.moments = append(c.moments, m)
	*next = c.after(*next, time.Since(start), time.Duration(cost))
	return nil
}

// after is when the reading after one is due: at a multiple of the step, and not before the cost of the reading is
// mostOfStep of the time. Times are since the course's beginning.
func (q Course) after(due, now, cost time.Duration) time.Duration {
	least := max(due+q.Step, now+time.Duration(float64(cost)/mostOfStep))
	return (least + q.Step - 1) / q.Step * q.Step
}

// TakeCourse ends the course and returns its readings.
func (a *Agent) TakeCourse(ctx context.Context) ([]meter.Moment, error) {
	a.mu.Lock()
	c := a.course
	a.course = nil
	a.mu.Unlock()
	if c == nil {
		return nil, errors.New("the host's meter is not being followed")
	}
	close(c.stop)
	select {
	case <-c.done:
		return c.moments, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// RTTCourse has the median round-trip time of each step of the window that the last TakeRTT ended, microseconds; 0
// where no probe came back.
func (a *Agent) RTTCourse(_ context.Context, step time.Duration) ([]float64, error) {
	defer a.traffic.lock()()
	if a.traffic.prober == nil {
		return nil, errors.New("no round-trip probes run")
	}
	if step <= 0 {
		return nil, errors.New("a course without steps")
	}
	return a.traffic.prober.Course(step), nil
}
