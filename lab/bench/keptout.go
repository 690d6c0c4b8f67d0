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

// A gateway that keeps nobody out costs next to nothing. So a few clients knock at the door of the load, at the
// server's traffic address, before they are admitted, and nothing may be seen at the server; once they are admitted
// they knock until something is, which proves that the knocks would have been seen. They knock once more when they have
// been logged out.
//
//	lease ── knock: nothing arrives ── admit ── nothing has arrived late ── knock: it arrives ── load ── revoke ── knock: nothing
//
// Packets of one client keep their order. So a knock before admission that was held up on the way is at the server by
// the time that a later one is: a busy machine cannot hide it.

// Knocking.
const (
	knockers  = 3 // clients of each host, spread over all
	knocks    = 3 // of each, before admission
	knockGap  = 30 * time.Millisecond
	knockWait = 60 * time.Millisecond // at least, for what was sent to arrive
	// A last knock has nothing after it. It has several times as long as one of an admitted client took.
	slower   = 4
	mostWait = 2 * time.Second

	letInTimeout = 15 * time.Second     // for the first packet of an admitted client
	letInEvery   = 2 * time.Millisecond // between two looks at the server
	letInLooks   = 50                   // until clients knock again
)

const beforeAdmission = "before admission"

// NotKeptOut says that a client that was not admitted reached the server.
type NotKeptOut struct {
	text string
}

func (e *NotKeptOut) Error() string { return e.text }

// door is where the load's packets are to arrive.
func (s *Bench) door() agent.Door {
	return agent.Traffic{Kind: s.Has.Traffic.Kind, UDP: s.Has.Traffic.Protocol == "udp", Server: s.Env.ServerIP}.Door()
}

// ProveKeptOut has clients knock, and returns a *NotKeptOut when any is heard. The device is one that keeps clients
// out, or nothing is done; when is a part of the error's text. The server hears knocks until ProveLetIn or
// proveExpelled.
func (s *Bench) ProveKeptOut(ctx context.Context, when string) error {
	if !dut.KeepsOut(s.DUT) {
		return nil
	}
	if err := s.Server.WatchDoor(ctx, s.Server.Ifs[0], s.door()); err != nil {
		return err
	}
	if err := s.knock(ctx, agent.Knocks{Times: knocks, Gap: knockGap}, s.everyKnocker()); err != nil {
		return err
	}
	if err := Sleep(ctx, max(knockWait, min(slower*s.heard, mostWait))); err != nil {
		return err
	}
	return s.heardNothing(ctx, when)
}

// heardNothing returns a *NotKeptOut when a knock has arrived since the look before.
func (s *Bench) heardNothing(ctx context.Context, when string) error {
	from, err := s.Server.Arrivals(ctx)
	if err != nil || len(from) == 0 {
		return err
	}
	advice := "The device keeps nobody out, or only others"
	if _, own := s.DUT.(*dut.Custom); own {
		advice += ": see whether its rules are in place and name the clients' interface, $GATEWEIGH_LAN_IF, and whether " +
			"revoke or logout undoes what admits; " +
			"a device that lets these packets through before admission says so with open = true"
	}
	return &NotKeptOut{fmt.Sprintf("%s reached %s %s: %s arrived at the server, and none was to. %s",
		s.senders(from), s.door(), when, words.Counted(len(from), "packet"), advice)}
}

// senders names clients by the addresses that their packets came from.
func (s *Bench) senders(from []netip.Addr) string {
	slices.SortFunc(from, netip.Addr.Compare)
	var list []string
	for _, ip := range slices.Compact(slices.Clone(from)) {
		i := slices.IndexFunc(s.Clients, func(c dut.ClientAddr) bool { return c.IP == ip })
		if i < 0 {
			list = append(list, fmt.Sprintf("a client (as %s)", ip))
			continue
		}
		list = append(list, fmt.Sprintf("client %d (%s)", s.Clients[i].N, ip))
	}
	return strings.Join(list, ", ")
}

// everyKnocker are the clients that knock, of each host, by their places from 0: those with an address, the first of
// them, the last, and one between.
func (s *Bench) everyKnocker() [][]int {
	list := make([][]int, len(s.Hosts))
	for i, h := range s.Hosts {
		var places []int
		for _, c := range s.Clients {
			if place := c.N - h.first; place >= 0 && place < h.count {
				places = append(places, place)
			}
		}
		n := min(knockers, len(places))
		for k := range n {
			list[i] = append(list[i], places[k*(len(places)-1)/max(n-1, 1)])
		}
		list[i] = slices.Compact(list[i])
	}
	return list
}

// knock has clients of all hosts knock.
func (s *Bench) knock(ctx context.Context, k agent.Knocks, who [][]int) error {
	k.Door = s.door()
	return s.EachHost(func(i int, h ClientHost) error {
		if len(who[i]) == 0 {
			return nil
		}
		k := k
		k.Clients = who[i]
		return h.Knock(ctx, k)
	})
}

// ProveLetIn has clients that are admitted now knock until one is heard. out says of a client's number that it was not
// admitted. Where that is so of all that knocked before, nothing can be proved, and it is no error.
func (s *Bench) ProveLetIn(ctx context.Context, out func(client int) bool) (err error) {
	if !dut.KeepsOut(s.DUT) {
		return nil
	}
	defer func() { err = errors.Join(err, s.Server.LeaveDoor(context.WithoutCancel(ctx))) }()
	if err := s.heardNothing(ctx, beforeAdmission); err != nil {
		return err
	}
	who, some := s.everyKnocker(), false
	for i, h := range s.Hosts {
		who[i] = slices.DeleteFunc(who[i], func(place int) bool { return out(h.first + place) })
		some = some || len(who[i]) > 0
	}
	for start := time.Now(); some; {
		if err := s.knock(ctx, agent.Knocks{Times: 1, Gap: letInEvery}, who); err != nil {
			return err
		}
		heard, err := s.hears(ctx)
		if err != nil || heard {
			s.heard = time.Since(start)
			return err
		}
		if time.Since(start) > letInTimeout {
			return s.withEnded(ctx, fmt.Errorf(
				"nothing that admitted clients sent to %s for %s arrived at the server: does the device forward what its clients "+
					"send, once they are admitted?", s.door(), letInTimeout))
		}
	}
	return nil
}

// hears waits a little for a knock.
func (s *Bench) hears(ctx context.Context) (bool, error) {
	for range letInLooks {
		from, err := s.Server.Arrivals(ctx)
		if err != nil || len(from) > 0 {
			return len(from) > 0, err
		}
		if err := Sleep(ctx, letInEvery); err != nil {
			return false, err
		}
	}
	return false, nil
}

// proveExpelled is ProveKeptOut of clients that were logged out or revoked, where the device does that.
func (s *Bench) proveExpelled(ctx context.Context) error {
	if !dut.Expels(s.DUT) || len(s.Clients) == 0 {
		return nil
	}
	err := s.ProveKeptOut(ctx, "after leaving")
	return errors.Join(err, s.Server.LeaveDoor(ctx))
}
