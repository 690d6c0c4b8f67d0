package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestAsk: a gateway gets what another one answers, with many questions at once, also after the server was killed. A
// refusal says why. Who is away, knows no answer or does not answer is told apart, in bounded time. Long: the steps of
// one run.
func TestAsk(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, _, _ := join(t, options(server, "gw1"))
	two, _, leave := join(t, options(server, "gw2"))
	await(t, one, true)
	await(t, two, true)
	two.Answer("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
		return fmt.Appendf(nil, "%s says %s", from, body), nil
	})
	two.Answer("refuse", func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("not today") })
	two.Answer("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ask := func(topic, body string) (string, error) {
		answer, err := one.Ask(t.Context(), "gw2", topic, []byte(body))
		return string(answer), err
	}
	binary := "\x00\n\xff+-"
	netnstest.Await(t, "an answer", func() error { // the gateway may begin to read only now
		got, err := ask("echo", binary)
		if err == nil && got != "gw1 says "+binary {
			t.Errorf("%q", got)
		}
		return err
	})
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if got, err := ask("echo", fmt.Sprint(i)); err != nil || got != fmt.Sprint("gw1 says ", i) {
				t.Errorf("%d: %q, %v", i, got, err)
			}
		})
	}
	all.Wait()
	for topic, want := range map[string]string{"refuse": "not today", "unknown": "older version", "hang": ""} {
		if got, err := ask(topic, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", topic, got, err)
		}
	}
	server.Kill()
	if _, err := ask("echo", "x"); err == nil {
		t.Error("an answer without a server")
	}
	server.Restart()
	netnstest.Await(t, "an answer after a restart", func() error { _, err := ask("echo", "x"); return err })
	await(t, two, true)
	leave()
	if _, err := ask("echo", "x"); !errors.Is(err, ErrAway) {
		t.Errorf("of a gateway that has ended: %v", err)
	}
}

// TestShift: times of a gateway whose clock is ten minutes ahead are converted.
func TestShift(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, _, _ := join(t, options(server, "gw1"))
	two := Open(options(server, "gw2"))
	two.Mirror("sessions")
	const fast = 10 * time.Minute
	two.Line("sessions", func(at time.Time) time.Time { return at.Add(fast) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); two.Run(ctx) }()
	defer func() { stop(); <-ended; two.Close() }()
	netnstest.Await(t, "both clocks are known", func() error {
		there, known := one.Shift("sessions", "gw2")
		back, known2 := two.Shift("sessions", "gw1")
		if !known || !known2 || (there+fast).Abs() > time.Second || (back-fast).Abs() > time.Second {
			return fmt.Errorf("%s %v, %s %v", there, known, back, known2)
		}
		return nil
	})
	if _, known := one.Shift("sessions", "gw3"); known {
		t.Error("the clock of an unknown gateway is known")
	}
}
