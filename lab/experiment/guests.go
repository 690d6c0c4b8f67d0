package experiment

import (
	"math"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/words"
)

const (
	// GuestStays is how long a guest stays, from login to logout.
	GuestStays = 2 * time.Second
	// guestTakes is how long its whole visit may take, on average, before guests run
	// short.
	guestTakes = 6 * time.Second
)

// Guests is the number of guests of a lab at the experiment's rate of arrivals; 0 without churn.
func (c Client) Guests() int {
	if c.Churn == 0 {
		return 0
	}
	return int(math.Ceil(c.Churn*guestTakes.Seconds())) + 1
}

// checkGuests refuses guests where a device has no login, or where guests and clients
// together are too many.
func (e *Experiment) checkGuests(report Report) {
	if e.Client.Churn == 0 {
		return
	}
	kind := client.KindOf(e.Client.Kind)
	if !kind.Guests {
		report("client.churn", "needs client.kind = %s",
			strict.Choice(client.Kinds(func(k client.Kind) bool { return k.Guests })))
	}
	for _, name := range e.DUTs {
		if !e.logsIn(name) {
			report("duts", "%q does not go with client.churn: its clients do not log in themselves", name)
		}
	}
	if most := e.mostClients(); most+e.Client.Guests() > kind.MaxClients {
		report("client.churn", "%g a second are %s, and with %s more than the %d that a lab takes", e.Client.Churn,
			words.Counted(e.Client.Guests(), "guest"), words.Agreed(most, "client", "clients"), kind.MaxClients)
	}
}

// logsIn reports whether a device's clients log in themselves; those of one that is
// written in Go do.
func (e *Experiment) logsIn(name string) bool {
	d, described := e.Custom[name]
	return name != Clean && (!described || d.Like != "" || len(d.Login) > 0)
}

// checkSessions refuses fewer sessions than clients, since the clients' sessions are among them.
func (e *Experiment) checkSessions(report Report) {
	most, who := e.mostClients(), "clients"
	if guests := e.Client.Guests(); guests > 0 {
		who = "clients and " + words.Counted(guests, "guest")
	}
	for _, name := range e.DUTs {
		sessions := e.Custom[name].Sessions
		if all := most + e.Client.Guests(); sessions > 0 && all > MaxAmongSessions {
			report("clients", "%d %s: a device with sessions (%s) takes up to %d of them", most, who, dutKey(name, ""),
				MaxAmongSessions)
		} else if sessions > 0 && all > sessions {
			report(dutKey(name, "sessions"), "%d: the %d %s are among them", sessions, most, who)
		}
	}
}
