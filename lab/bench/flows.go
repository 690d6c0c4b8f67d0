package bench

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Files of connections that a kernel tracks, below /proc/sys/net/netfilter: those of
// the namespace, and how many the table of the whole machine holds.
const (
	flowCount = "/proc/sys/net/netfilter/nf_conntrack_count"
	flowLimit = "/proc/sys/net/netfilter/nf_conntrack_max"
)

// FlowsPerClient is the number of connections that a router tracks of one client: stream, probe,
// and the login's connections until they expire.
const FlowsPerClient = 16

// fewClients fit with their connections into the table of any machine.
const fewClients = 250

// flowsPerStream counts a stream and, after a repeated attempt, its successor.
const flowsPerStream = 2

// checkFlows refuses a load whose connections a device tracks and the kernel's table
// cannot hold: the kernel would drop packets of the rest silently, and the loss would look like the
// device's. The check follows the logins, because only then is it seen whether the device tracks
// connections at all.
func (s *Bench) checkFlows(ctx context.Context) error {
	if len(s.Clients) <= fewClients {
		return nil
	}
	count, limit, err := s.flows(ctx)
	return cmp.Or(err, flowsFit(len(s.Clients), count, limit))
}

// flows returns how many connections the router's kernel tracks, and the limit; both are zero on
// a kernel without such a table.
func (s *Bench) flows(ctx context.Context) (count, limit int, err error) {
	if s.Router == nil {
		return 0, 0, nil
	}
	out, err := s.Router.Run(ctx, agent.Command{Argv: []string{"cat", flowCount, flowLimit}, Support: true})
	if err != nil {
		return 0, 0, nil
	}
	if _, err := fmt.Sscan(out.Stdout, &count, &limit); err != nil {
		return 0, 0, fmt.Errorf("reading the table of tracked connections: %w", err)
	}
	return count, limit, nil
}

// Flows is the number of connections that the router's kernel tracks, or 0 if it is unknown.
func (s *Bench) Flows(ctx context.Context) int {
	count, _, _ := s.flows(ctx)
	return count
}

// explainByFlows returns why clients were not admitted: err, or that the table of tracked connections
// became full during admission, a limit of the machine.
func (s *Bench) explainByFlows(ctx context.Context, err error) error {
	count, limit, unread := s.flows(ctx)
	if unread != nil || !flowsFull(count, limit) {
		return err
	}
	return fmt.Errorf(
		"the table of tracked connections is full, %d of %d: about %s, or raise it: sysctl -w "+
			"net.netfilter.nf_conntrack_max=%d (%v)",
		count, limit, words.Agreed(max(1, limit/FlowsPerClient), "client fits", "clients fit"),
		max(FlowsPerClient*s.Side.Clients, 2*limit), err)
}

// flowsFull reports whether the table is full. Entries expire one by one, so it counts as full
// from 95 % on.
func flowsFull(count, limit int) bool { return limit > 0 && count >= limit-limit/20 }

// flowsFit compares the present and coming connections of the logged-in clients with the limit.
func flowsFit(clients, count, limit int) error {
	need := count + flowsPerStream*clients
	if count == 0 || need <= limit { // 0: nothing is tracked
		return nil
	}
	return fmt.Errorf(
		"the device tracks connections: %s will take %d entries of a table that holds %d; about %s, or raise it: sysctl -w "+
			"net.netfilter.nf_conntrack_max=%d",
		words.Agreed(clients, "client", "clients"), need, limit,
		words.Agreed(int(float64(limit)/float64(need)*float64(clients)), "client fits", "clients fit"), 2*need)
}
