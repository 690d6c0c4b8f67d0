// Tests of guests: clients that come, log in and go while others send. toyClient is a kind of client for tests: one
// more address at an interface (toy_test.go).

package client

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slowLease takes 100 ms to lease, and none while it has a lease.
type slowLease struct {
	toyClient
	held bool
}

func (c *slowLease) lease(context.Context) (Tries, error) {
	if !c.held {
		time.Sleep(100 * time.Millisecond)
	}
	c.held = true
	return Tries{Count: 1}, nil
}

func (c *slowLease) release(context.Context) error {
	c.held = false
	return nil
}

// TestGuestsLeaveHoweverTheVisitEnds: a guest that is refused gives its lease back, so that its
// next visit leases again and the time of that lease is a lease's.
func TestGuestsLeaveHoweverTheVisitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var admitted bool
		refusals := loginAttempts // of the whole first visit
		portal := func(_ context.Context, _ *os.File, argv, _ []string) (string, error) {
			switch argv[0] {
			case "in":
				if refusals--; refusals >= 0 {
					return "", errors.New("no")
				}
				admitted = true
			case "out":
				admitted = false
			case "status":
				if !admitted {
					return "", errors.New("out")
				}
			}
			return "", nil
		}
		toy := &slowLease{}
		pool := &Pool{host: unsharedHost(func(c *Client) attachment { toy.Client = c; return toy })}
		pool.guests = pool.newClients(1, 1, portal)
		adm := Admission{Kind: AdmitCommand, Login: []string{"in"}, Status: []string{"status"}, Logout: []string{"out"}}
		if err := pool.Visit(t.Context(), Churn{PerSecond: 0.05, Stay: time.Second, Admission: adm}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // two visits
		got := pool.Leave(t.Context())
		if got.Came != 2 || got.In != 1 || got.Gone != 1 || len(got.Failures) != 1 ||
			!slices.Equal(got.LeaseMs, []float64{100}) || toy.held {
			t.Errorf("%+v, still leased: %v; want one refused visit, and one that leased for 100 ms", got, toy.held)
		}
	})
}
