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
	// guestTakes is the longest mean length of a visit for which there are enough guests at any time.
	guestTakes = 6 * time.Second
)

// Guests returns how many guests a lab needs so that one is free at each arrival; 0 without churn.
func (c Client) Guests() int {
	if c.Churn == 0 {
		return 0
	}
	return int(math.Ceil(c.Churn*guestTakes.Seconds())) + 1
}

// checkGuests refuses guests where a device's clients do not log in, and too many guests and clients together.
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

// logsIn reports whether a device's clients log in themselves. Those of devices written in Go do.
func (e *Experiment) logsIn(name string) bool {
	d, described := e.Custom[name]
	return name != Clean && (!described || d.Like != "" || len(d.Login) > 0)
}

// checkSessions refuses fewer sessions than clients, since the clients' sessions are among them.
func (e *Experiment) checkSessions(report Report) {
	most, kinds := e.mostClients(), "clients"
	if guests := e.Client.Guests(); guests > 0 {
		kinds = "clients and " + words.Counted(guests, "guest")
	}
	for _, name := range e.DUTs {
		sessions := e.Custom[name].Sessions
		if all := most + e.Client.Guests(); sessions > 0 && all > MaxAmongSessions {
			report("clients", "%d %s: a device with sessions (%s) takes up to %d of them", most, kinds, dutKey(name, ""),
				MaxAmongSessions)
		} else if sessions > 0 && all > sessions {
			report(dutKey(name, "sessions"), "%d: the %d %s are among them", sessions, most, kinds)
		}
	}
}
