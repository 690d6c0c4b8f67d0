package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/words"
)

// A gateway that blocks no client costs next to nothing, so each block proves that its device does. Before admission a
// few clients send packets to the load's port, which are called knocks, and the server may see none. Once admitted they
// knock until the server sees one, which proves that it would have seen the others. After logout they knock again.
//
//	lease ── knock: nothing arrives ── admit ── nothing has arrived late ── knock: it arrives ── load ── revoke ── knock: nothing
//
// A busy machine cannot hide a knock before admission, only delay it: packets of one client keep their order, so it
// reaches the server before the knocks after admission do.

const (
	knockingClients = 3 // clients of each host, spread over all
	knocksPerClient = 3 // of each client, before admission
	knockGap        = 30 * time.Millisecond
	knockWait       = 60 * time.Millisecond // the shortest wait for knocks to arrive
	// No knock follows the last one, so the wait for it is longer: this multiple of the time that the first knock of an
	// admitted client took.
	lastWaitFactor = 4
	maxLastWait    = 2 * time.Second

	admittedTimeout = 15 * time.Second     // for the first packet of an admitted client
	pollInterval    = 2 * time.Millisecond // between two calls of Arrivals
	pollsPerKnock   = 50                   // before clients knock again
)

const beforeAdmission = "before admission"

// NotBlocked is the error that a client reached the server without admission.
type NotBlocked struct {
	text string
}

func (e *NotBlocked) Error() string { return e.text }

// loadPort returns the server's port for the load.
func (s *Bench) loadPort() agent.LoadPort {
	return agent.Traffic{
		Kind: s.Side.Traffic.Kind, UDP: s.Side.Traffic.Protocol == "udp", Server: s.TrafficServer()}.LoadPort()
}

// ProveBlocked has clients knock, and returns a *NotBlocked when a knock arrives. It does nothing for a device that
// blocks no clients. when is a part of the error's text. The server records knocks until ProveAdmitted or
// proveBlockedAfterLeaving.
func (s *Bench) ProveBlocked(ctx context.Context, when string) error {
	if !dut.BlocksUnadmitted(s.DUT) {
		return nil
	}
	if err := s.Server.WatchPort(ctx, s.Server.Ifs[0], s.loadPort()); err != nil {
		return err
	}
	if err := s.knock(ctx, agent.Knocks{Times: knocksPerClient, Gap: knockGap}, s.knockersByHost()); err != nil {
		return err
	}
	if err := Sleep(ctx, max(knockWait, min(lastWaitFactor*s.admittedDelay, maxLastWait))); err != nil {
		return err
	}
	return s.checkNoArrivals(ctx, when)
}

// checkNoArrivals returns a *NotBlocked when a knock has arrived since the last check.
func (s *Bench) checkNoArrivals(ctx context.Context, when string) error {
	from, err := s.Server.Arrivals(ctx)
	if err != nil || len(from) == 0 {
		return err
	}
	advice := "The device keeps nobody out, or only others"
	if _, custom := s.DUT.(*dut.Custom); custom {
		advice += ": see whether its rules are in place and name the clients' interface, $GATEWEIGH_LAN_IF, and whether " +
			"revoke or logout undoes what admits; " +
			"a device that lets these packets through before admission says so with open = true"
	}
	return &NotBlocked{fmt.Sprintf("%s reached %s %s: %s arrived at the server, and none was to. %s",
		s.senders(from), s.loadPort(), when, words.Counted(len(from), "packet"), advice)}
}

// senders names the clients that have these addresses.
func (s *Bench) senders(from []netip.Addr) string {
	slices.SortFunc(from, netip.Addr.Compare)
	var list []string
	for _, ip := range slices.Compact(slices.Clone(from)) {
		i := slices.IndexFunc(s.Clients, func(c dut.ClientAddr) bool { return c.IP == ip || c.IP6 == ip })
		if i < 0 {
			list = append(list, fmt.Sprintf("a client (as %s)", ip))
			continue
		}
		list = append(list, fmt.Sprintf("client %d (%s)", s.Clients[i].N, ip))
	}
	return strings.Join(list, ", ")
}

// knockersByHost lists the clients that knock by host, as indices of the host's clients. Of the clients with an address
// they are the first, the last, and one between.
func (s *Bench) knockersByHost() [][]int {
	list := make([][]int, len(s.Hosts))
	for i, h := range s.Hosts {
		var places []int
		for _, c := range s.Clients {
			if place := c.N - h.first; place >= 0 && place < h.count {
				places = append(places, place)
			}
		}
		n := min(knockingClients, len(places))
		for k := range n {
			list[i] = append(list[i], places[k*(len(places)-1)/max(n-1, 1)])
		}
		list[i] = slices.Compact(list[i])
	}
	return list
}

// knock has the listed clients of each host knock.
func (s *Bench) knock(ctx context.Context, k agent.Knocks, clientsByHost [][]int) error {
	k.Port = s.loadPort()
	return s.EachHost(func(i int, h ClientHost) error {
		if len(clientsByHost[i]) == 0 {
			return nil
		}
		k := k
		k.Clients = clientsByHost[i]
		return h.Knock(ctx, k)
	})
}

// ProveAdmitted has admitted clients knock until a knock arrives. excluded reports whether a client, by number, was not
// admitted. If that holds for all knockers, ProveAdmitted proves nothing and returns no error.
func (s *Bench) ProveAdmitted(ctx context.Context, excluded func(client int) bool) (err error) {
	if !dut.BlocksUnadmitted(s.DUT) {
		return nil
	}
	defer func() { err = errors.Join(err, s.Server.UnwatchPort(context.WithoutCancel(ctx))) }()
	if err := s.checkNoArrivals(ctx, beforeAdmission); err != nil {
		return err
	}
	clients, some := s.knockersByHost(), false
	for i, h := range s.Hosts {
		clients[i] = slices.DeleteFunc(clients[i], func(place int) bool { return excluded(h.first + place) })
		some = some || len(clients[i]) > 0
	}
	for start := time.Now(); some; {
		if err := s.knock(ctx, agent.Knocks{Times: 1, Gap: pollInterval}, clients); err != nil {
			return err
		}
		heard, err := s.awaitArrival(ctx)
		if err != nil || heard {
			s.admittedDelay = time.Since(start)
			return err
		}
		if time.Since(start) > admittedTimeout {
			return s.withEndedPrograms(ctx, fmt.Errorf(
				"nothing that admitted clients sent to %s for %s arrived at the server: does the device forward what its clients "+
					"send, once they are admitted?", s.loadPort(), admittedTimeout))
		}
	}
	return nil
}

// awaitArrival waits for a knock, up to pollsPerKnock calls, and reports whether one arrived.
func (s *Bench) awaitArrival(ctx context.Context) (bool, error) {
	for range pollsPerKnock {
		from, err := s.Server.Arrivals(ctx)
		if err != nil || len(from) > 0 {
			return len(from) > 0, err
		}
		if err := Sleep(ctx, pollInterval); err != nil {
			return false, err
		}
	}
	return false, nil
}

// proveBlockedAfterLeaving is ProveBlocked after logout or revocation, for devices that have one of them.
func (s *Bench) proveBlockedAfterLeaving(ctx context.Context) error {
	if !dut.EndsAdmission(s.DUT) || len(s.Clients) == 0 {
		return nil
	}
	err := s.ProveBlocked(ctx, "after leaving")
	return errors.Join(err, s.Server.UnwatchPort(ctx))
}
