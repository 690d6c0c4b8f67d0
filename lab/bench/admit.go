package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// How many clients ask for leases at the same time, and log in at a device whose admission sets no number.
const (
	leaseParallel = 32
	loginParallel = 16
)

// longestLogin bounds the time in which all clients of a block log in. A device that needs longer cannot serve that
// number of clients.
const longestLogin = 10 * time.Minute

// NotAdmitted is the error that some clients got no lease or could not log in.
type NotAdmitted struct {
	DeviceFault bool   // the device is at fault: its DHCP server or its portal
	step        string // that failed: "lease", "log in"
	in          int    // number of clients that could
	asked       int    // number of clients that tried
	first       error  // of the first client that could not
}

func (e *NotAdmitted) Error() string {
	return fmt.Sprintf("%d of %s could %s: %v", e.in, words.Counted(e.asked, "client"), e.step, e.first)
}

func (e *NotAdmitted) Unwrap() error { return e.first }

// notAdmittedError is the *NotAdmitted of outcomes, nil when all clients were admitted.
func notAdmittedError(step string, ownFault bool, outcomes []client.Outcome) error {
	first := client.FirstFailure(outcomes)
	if first == nil {
		return nil
	}
	in := len(slices.DeleteFunc(slices.Clone(outcomes), func(o client.Outcome) bool { return !o.Succeeded() }))
	return &NotAdmitted{step: step, DeviceFault: ownFault, in: in, asked: len(outcomes), first: first}
}

// Outcomes calls do for all client hosts at once and returns the outcomes of all clients.
func (s *Bench) Outcomes(do func(i int, h ClientHost) ([]client.Outcome, error)) ([]client.Outcome, error) {
	outcomes, err := Each(s.Hosts, do)
	return slices.Concat(outcomes...), err
}

// serveDHCP starts the lab's DHCP server where the device leases nothing and clients or
// guests ask for leases; guests ask even where the clients have static addresses.
func (s *Bench) serveDHCP(ctx context.Context) error {
	switch {
	case !client.KindOf(s.Side.Client).Leases, s.Traits.DHCP, s.static && s.Guests == 0:
		return nil
	case s.static:
		return s.Lab.ServeDHCP(ctx, s.Side.Clients)
	}
	return s.Lab.ServeDHCP(ctx, 0)
}

// Share has the lab's client hosts hold so many clients each, in the order of the topology, instead of equal shares. It
// is called before CreateClients. The numbers add up to the lab's clients.
func (s *Bench) Share(counts ...int) {
	s.Hosts = nil
	first := 1
	for i, n := range counts {
		s.Hosts = append(s.Hosts, ClientHost{s.Lab.Clients[i], first, n})
		first += n
	}
}

// Everywhere has each of the lab's client hosts hold all clients, with the same numbers and hardware addresses: a client
// is then in several networks. It is called before CreateClients.
func (s *Bench) Everywhere() {
	s.Hosts = nil
	for _, h := range s.Lab.Clients {
		s.Hosts = append(s.Hosts, ClientHost{h, 1, s.Side.Clients})
	}
}

// CreateClients makes the clients; they have no addresses yet.
func (s *Bench) CreateClients(ctx context.Context) error {
	return s.EachHost(func(i int, h ClientHost) error {
		guest, guests := s.guestsOf(i)
		cfg := client.Config{
			Kind: s.Side.Client, First: h.first, Count: h.count, FirstGuest: guest, Guests: guests, Parent: h.Ifs[0],
			LAN: s.Lab.LAN, Gateway: s.Lab.Gateway,
			Family: s.Side.Family, LAN6: s.Lab.LAN6, Gateway6: s.Lab.Gateway6, Sessions6: s.Lab.Sessions6,
			LeasesIPv4: s.Traits.LeasesIPv4,
			Account:    client.Account{User: s.Traits.Admission.User, Password: s.Traits.Admission.Password},
			Singly:     s.singly,
			Lab:        s.Lab.Name[0],
		}
		if s.static {
			cfg.FirstStatic = s.Lab.FirstLease
		}
		return h.CreateClients(ctx, cfg)
	})
}

func (s *Bench) admitClients(ctx context.Context) error {
	start := time.Now()
	if err := s.CreateClients(ctx); err != nil {
		return err
	}
	outcomes, err := s.Outcomes(func(_ int, h ClientHost) ([]client.Outcome, error) {
		return h.Lease(ctx, client.Pace{Parallel: leaseParallel})
	})
	if err = cmp.Or(err, notAdmittedError("lease", s.Traits.DHCP, outcomes)); err != nil {
		return s.notAdmitted(ctx, err)
	}
	s.Lease = time.Since(start)
	if err := s.Leased(ctx); err != nil {
		return err
	}
	if err := s.ProveBlocked(ctx, beforeAdmission); err != nil {
		return err
	}
	if err := s.logIn(ctx); err != nil {
		return err
	}
	return s.ProveAdmitted(ctx, func(int) bool { return false })
}

// logIn has all clients log in; a device that is a dut.Admitter admits them itself.
func (s *Bench) logIn(ctx context.Context) error {
	start := time.Now()
	if adm, ok := s.DUT.(dut.Admitter); ok {
		if err := adm.Admit(ctx, s.Env, s.Clients); err != nil {
			return err
		}
	}
	// A portal that answers one client at a time takes as long as there are clients, longer still on a slow CPU.
	patience := min(time.Minute+time.Duration(s.Side.Clients)*max(time.Second, 2*s.Traits.Login), longestLogin)
	pace := client.Pace{Parallel: cmp.Or(s.Traits.Admission.Parallel, loginParallel), Patience: patience}
	outcomes, err := s.Outcomes(func(_ int, h ClientHost) ([]client.Outcome, error) {
		return h.Login(ctx, s.Traits.Admission, pace)
	})
	portal := s.Traits.Admission.Kind != client.AdmitNone
	if err = cmp.Or(err, notAdmittedError("log in", portal, outcomes)); err != nil {
		return s.notAdmitted(ctx, err)
	}
	s.Login = time.Since(start)
	if portal {
		for _, o := range outcomes {
			s.LoginMs = append(s.LoginMs, o.Ms)
		}
	}
	return nil
}

// notAdmitted wraps an error with the number of clients and the programs that have ended.
func (s *Bench) notAdmitted(ctx context.Context, err error) error {
	return fmt.Errorf("admitting %s: %w", words.Counted(s.Side.Clients, "client"), s.withEndedPrograms(ctx, err))
}

// Leased adds the clients that have an address to Clients. It also adds them to the router's neighbour table, if the
// lab does that (EntersNeighbours) and the device does not do it itself.
func (s *Bench) Leased(ctx context.Context) error {
	each, err := Each(s.Hosts, func(_ int, h ClientHost) ([]client.Address, error) { return h.Clients(ctx) })
	if err != nil {
		return err
	}
	addrs := slices.DeleteFunc(slices.Concat(each...), func(a client.Address) bool { return len(a.IPs()) == 0 })
	for _, a := range addrs {
		s.Clients = append(s.Clients, dut.ClientAddr{N: a.Num, IP: a.IP, IP6: a.IP6, MAC: a.MAC})
	}
	if !s.addsNeighbours || s.Traits.Neighbours || s.Router == nil {
		return nil
	}
	return s.Router.AddNeighbours(ctx, agent.Neighbours{Link: s.Lab.Port(topology.PortLAN), List: addrs})
}

// EntersNeighbours reports whether the labs add their clients to the routers' neighbour tables. They do so in both
// compared labs as soon as one of them has more clients than a kernel's table learns by itself.
func EntersNeighbours(sides ...experiment.Side) bool {
	return slices.ContainsFunc(sides, func(s experiment.Side) bool {
		most := client.KindOf(s.Client).MaxLearned
		return most > 0 && s.Clients > most
	})
}

// hasStatic reports whether the lab sets its clients' addresses without DHCP. It does so for as many clients as need
// EntersNeighbours (entered), unless the device leases addresses itself. Otherwise the lab's own DHCP server, which is
// not measured, would have to lease them. It walks the list of its leases for each request: 10,000 clients took it 9 s,
// and 65,000 had not leased after 7 minutes.
func hasStatic(has experiment.Side, entered bool, t dut.Traits) bool {
	k := client.KindOf(has.Client)
	return entered && k.Leases && k.Static && !t.DHCP
}

// Addresses returns where the lab's clients get their addresses: result.Static, FromDevice or FromLab.
func (s *Bench) Addresses() string {
	switch {
	case s.static, !client.KindOf(s.Side.Client).Leases:
		return result.Static
	case s.Traits.DHCP:
		return result.FromDevice
	}
	return result.FromLab
}

// guestsOf returns host i's guests: the number of the first guest, and the count.
func (s *Bench) guestsOf(i int) (first, count int) {
	n := len(s.Hosts)
	lo, hi := s.Guests*i/n, s.Guests*(i+1)/n
	return s.Side.Clients + lo + 1, hi - lo
}

// GuestVisits describes how guests arrive at host i. perSecond is the rate of all hosts together.
func (s *Bench) GuestVisits(i int, perSecond float64) client.Churn {
	first, count := s.guestsOf(i)
	turn := min(i, first-s.Side.Clients-1) // with fewer guests than hosts, hosts without a guest do not count
	return client.Churn{
		PerSecond: perSecond * float64(count) / float64(s.Guests), After: StartOffset(turn, perSecond),
		Stay: experiment.GuestStays, Admission: s.Traits.Admission,
	}
}

// Singly reports whether clients send packets one by one, without segmentation offload.
func (s *Bench) Singly() bool { return s.singly }
