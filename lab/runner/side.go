package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// side is one of the two labs of a block: a router with its device, clients
// that are admitted, meters that are open.
type side struct {
	lab     *testbed.Lab
	hosts   []clientHost
	dut     dut.DUT
	traits  dut.Traits
	env     dut.Env
	clients []dut.ClientAddr
	has     experiment.Side // clients and what they send; the guests' numbers follow the clients'
	guests  int
	most    int           // clients of the larger lab of the pair
	told    bool          // the router is told of its neighbours
	static  bool          // clients have addresses without asking for them
	load    agent.Traffic // what runs now or ran last, of all client hosts together
	pssMiB  float64       // memory of the device's programs when the last cell began

	connect, firstByte result.Delays // of the load that runs now or ran last
	marked             int64         // when its shares were marked by the server's clock, ns; zero: not
	fairness           result.Fairness
	memory             result.Memory
	empty              int64         // memory of the machine that was taken before the labs were built, KiB
	shorts             []short.Stats // by client host, of the cell that is measured or was last

	setup, lease, login time.Duration
	loginMs             []float64
	loggedIn            int
}

// clientHost is a host with its share of the side's clients.
type clientHost struct {
	*testbed.Host
	first, count int // numbers of its clients: first and on
}

// shareClients spreads n clients evenly over hosts; hosts that would get none
// are left out.
func shareClients(hosts []*testbed.Host, n int) []clientHost {
	var list []clientHost
	first := 1
	for i, h := range hosts {
		count := n*(i+1)/len(hosts) - n*i/len(hosts)
		if count > 0 {
			list = append(list, clientHost{h, first, count})
		}
		first += count
	}
	return list
}

// turnOf is how much later host i begins than the first, where hosts share a rate: they
// would act in pairs otherwise, at half of the rate.
func turnOf(i int, perSecond float64) time.Duration {
	if perSecond == 0 {
		return 0
	}
	return time.Duration(float64(i) / perSecond * float64(time.Second))
}

// eachHost works on all client hosts at once.
func (s *side) eachHost(fn func(i int, h clientHost) error) error {
	fns := make([]func() error, len(s.hosts))
	for i, h := range s.hosts {
		fns[i] = func() error { return fn(i, h) }
	}
	return testbed.Together(fns...)
}

// sideConfig is what differs between sides and blocks.
type sideConfig struct {
	backend  testbed.Backend
	topology testbed.Topology
	lab      string // "a" or "b"
	device   dut.DUT
	has      experiment.Side
	guests   int
	most     int  // clients of the larger lab of the pair
	told     bool // the router is told of its neighbours
	static   bool // clients have addresses without asking for them
}

// openSide builds a lab, starts its device, and brings all clients to the point
// where their traffic is forwarded. On error nothing is left.
func openSide(ctx context.Context, cfg sideConfig) (*side, error) {
	s, err := openDevice(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err = s.admitClients(ctx); err != nil {
		err = s.orFlows(ctx, err)
	} else {
		err = s.checkFlows(ctx)
	}
	if err == nil {
		err = s.openMeters(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// openDevice builds a lab and starts its device. On error nothing is left.
func openDevice(ctx context.Context, cfg sideConfig) (_ *side, err error) {
	s := &side{dut: cfg.device, traits: cfg.device.Traits(), has: cfg.has, guests: cfg.guests, most: cfg.most, told: cfg.told, static: cfg.static}
	start := time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.lab, err = cfg.topology.Build(ctx, cfg.backend, cfg.lab); err != nil {
		return nil, err
	}
	s.hosts = shareClients(s.lab.Clients, cfg.has.Clients)
	s.env = dut.Env{
		Router: s.lab.Router, Server: s.lab.Server, LANIf: s.lab.LANIf, WANIf: s.lab.WANIf,
		LAN: s.lab.LAN, Gateway: s.lab.Gateway, RouterWAN: s.lab.RouterWAN,
		ServerIP: s.lab.ServerIP, ServiceIP: s.lab.ServiceIP,
		Clients: cfg.has.Clients + cfg.guests, Scratch: agent.Scratch,
	}
	if err := s.startDevice(ctx); err != nil {
		return nil, err
	}
	s.setup = time.Since(start)
	return s, nil
}

// startTimeout is the last bound of a device's start: each has a shorter one of
// its own, and an experiment may allow its device ten minutes.
const startTimeout = 15 * time.Minute

func (s *side) startDevice(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	if err := s.serveDHCP(ctx); err != nil {
		return err
	}
	if err := s.dut.Start(ctx, s.env); err != nil {
		return err
	}
	s.traits = s.dut.Traits() // addresses in the admission are valid now
	return nil
}

// serveDHCP has the lab lease where the device does not and somebody will ask: guests
// do where the clients themselves have static addresses.
func (s *side) serveDHCP(ctx context.Context) error {
	kept := 0
	if s.static {
		kept = s.has.Clients
	}
	if !client.KindOf(s.has.Client).Leases || s.traits.DHCP || s.static && s.guests == 0 {
		return nil
	}
	return s.lab.ServeDHCP(ctx, kept)
}

func (s *side) admitClients(ctx context.Context) error {
	start := time.Now()
	if err := s.createClients(ctx); err != nil {
		return err
	}
	leased := make([][]client.Outcome, len(s.hosts))
	err := s.eachHost(func(i int, h clientHost) (err error) {
		leased[i], err = h.Lease(ctx, client.Pace{Parallel: leaseParallel})
		return err
	})
	if err = cmp.Or(err, gaveUp("lease", s.traits.DHCP, slices.Concat(leased...))); err != nil {
		return fmt.Errorf("admitting %d clients: %w", s.has.Clients, err)
	}
	s.lease = time.Since(start)
	addrs, err := s.leased(ctx)
	if err == nil {
		err = s.tellRouter(ctx, addrs)
	}
	if err != nil {
		return err
	}
	for _, a := range addrs {
		s.clients = append(s.clients, dut.ClientAddr{N: a.Num, IP: a.IP, MAC: a.MAC})
	}
	return s.logIn(ctx)
}

// logIn has all clients log in, by their device's own ways where it admits them itself.
func (s *side) logIn(ctx context.Context) error {
	start := time.Now()
	if adm, ok := s.dut.(dut.Admitter); ok {
		if err := adm.Admit(ctx, s.env, s.clients); err != nil {
			return err
		}
	}
	// A portal that answers one client at a time takes as long as there are clients.
	patience := min(time.Minute+time.Duration(s.has.Clients)*time.Second, longestLogin)
	pace := client.Pace{Parallel: cmp.Or(s.traits.Admission.Parallel, loginParallel), Patience: patience}
	outcomes := make([][]client.Outcome, len(s.hosts))
	err := s.eachHost(func(i int, h clientHost) (err error) {
		outcomes[i], err = h.Login(ctx, s.traits.Admission, pace)
		return err
	})
	if err = cmp.Or(err, gaveUp("log in", s.traits.Admission.Kind != client.AdmitNone, slices.Concat(outcomes...))); err != nil {
		return fmt.Errorf("admitting %d clients: %w", s.has.Clients, err)
	}
	s.login = time.Since(start)
	if s.traits.Admission.Kind == client.AdmitNone {
		return nil // no client did anything that took a time
	}
	for _, o := range slices.Concat(outcomes...) {
		s.loginMs = append(s.loginMs, o.Ms)
	}
	s.loggedIn = len(s.loginMs)
	return nil
}

// leased asks the client hosts for the addresses of those clients that have one.
func (s *side) leased(ctx context.Context) ([]client.Address, error) {
	each := make([][]client.Address, len(s.hosts))
	err := s.eachHost(func(i int, h clientHost) (err error) { each[i], err = h.Clients(ctx); return err })
	return slices.DeleteFunc(slices.Concat(each...), func(a client.Address) bool { return !a.IP.IsValid() }), err
}

// tellsRouter reports whether the lab enters clients into the neighbour tables of its
// routers: into those of both compared labs where one has more clients than the machine's
// table may have room for.
func tellsRouter(sides ...experiment.Side) bool {
	return slices.ContainsFunc(sides, func(s experiment.Side) bool {
		most := client.KindOf(s.Client).LearnMost
		return most > 0 && s.Clients > most
	})
}

// hasStatic reports whether the clients of a side have their addresses without asking.
// As many clients as are entered into the router's table would ask the lab's own server, where the
// device leases nothing: that server is not measured, and walks the list of its leases
// for each of them: 10,000 took it 9 s, and 65,000 had not leased after 7 minutes.
func hasStatic(has experiment.Side, told bool, t dut.Traits) bool {
	k := client.KindOf(has.Client)
	return told && k.Leases && k.Static && !t.DHCP
}

// addresses is where the side's clients have theirs from.
func (s *side) addresses() string {
	switch {
	case s.static, !client.KindOf(s.has.Client).Leases:
		return result.Static
	case s.traits.DHCP:
		return result.FromDevice
	}
	return result.FromLab
}

// tellRouter enters clients into the router's table of neighbours.
func (s *side) tellRouter(ctx context.Context, addrs []client.Address) error {
	if !s.told {
		return nil
	}
	return s.lab.Router.AddNeighbours(ctx, agent.Neighbours{Link: s.lab.LANIf, List: addrs})
}

// longestLogin is how long all clients of a block may take to log in: who has more
// to serve than it can in that time does not take so many.
const longestLogin = 10 * time.Minute

// How many clients lease, or log in at a device that does not say, at once.
const (
	leaseParallel = 32
	loginParallel = 16
)

func (s *side) openMeters(ctx context.Context) error {
	router, server := s.lab.Router, s.lab.Server
	err := testbed.Together(
		func() error {
			return router.OpenMeter(ctx, agent.Meter{IfNames: router.Ifs, Counted: s.traits.Processes, Follow: true})
		},
		func() error { return server.OpenMeter(ctx, agent.Meter{IfNames: server.Ifs, Support: true}) },
		func() error {
			return s.eachHost(func(_ int, h clientHost) error {
				return h.OpenMeter(ctx, agent.Meter{IfNames: h.Ifs, Support: true})
			})
		})
	if err != nil {
		return fmt.Errorf("opening the meters of lab %s: %w", s.lab.Name, err)
	}
	return nil
}

// deaths reports programs of the side that ended by themselves, as one error. A
// gateway or its RADIUS server that died would go on to be measured as a router
// that costs little.
func (s *side) deaths(ctx context.Context) error {
	dead, err := s.dead(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, text := range slices.Concat(dead.device, dead.lab) {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// dead lists programs that ended by themselves: those of the device on its
// router, and those of the lab.
type dead struct{ device, lab []string }

func (s *side) dead(ctx context.Context) (d dead, err error) {
	for _, h := range s.lab.Hosts {
		if h.Role == testbed.RoleClient {
			continue // their programs are the traffic, which counts as broken when it ends
		}
		list, err := h.Programs(ctx)
		if err != nil {
			return d, err
		}
		for _, p := range list {
			if !p.Ended {
				continue
			}
			text := fmt.Sprintf("%s on %s ended by itself: %s: %s", p.Name, h.Name, p.How, cmp.Or(p.Output, "it printed nothing"))
			if h.Role == testbed.RoleRouter {
				d.device = append(d.device, text)
			} else {
				d.lab = append(d.lab, text)
			}
		}
	}
	return d, nil
}

// causeOf is why something went wrong in labs: hosts whose agents have ended, or else
// err. A lost host takes its links along, and whoever asks for them finds something
// to complain of.
func causeOf(err error, sides ...*side) error {
	var lost []error
	for _, s := range sides {
		for _, h := range s.lab.Hosts {
			lost = append(lost, h.Err())
		}
	}
	return cmp.Or(errors.Join(lost...), err)
}

// leaveTimeout bounds each polite step of closing; what it leaves undone ends
// with the hosts all the same.
const leaveTimeout = 2 * time.Minute

// leave logs out clients that have commands for it, gives the leases back and
// stops the device, as a real network would see it happen. Sessions of the
// portals the lab knows end with the device: openNDS takes seconds for them.
func (s *side) leave(ctx context.Context) error {
	step := func(what string, fn func(context.Context) error) error { return s.step(ctx, what, fn) }
	errs := []error{step("stopping the traffic", s.stopTraffic)}
	if adm := s.traits.Admission; adm.Kind == client.AdmitCommand {
		errs = append(errs, step("logging the clients out", func(ctx context.Context) error {
			return s.eachHost(func(_ int, h clientHost) error { return h.Logout(ctx, adm) })
		}))
	}
	errs = append(errs, step("releasing the leases", func(ctx context.Context) error {
		return s.eachHost(func(_ int, h clientHost) error { return h.Release(ctx) })
	}))
	if adm, ok := s.dut.(dut.Admitter); ok {
		errs = append(errs, step("revoking the clients", func(ctx context.Context) error { return adm.Revoke(ctx, s.env, s.clients) }))
	}
	return errors.Join(append(errs, s.stopDevice(ctx))...)
}

func (s *side) stopDevice(ctx context.Context) error {
	return s.step(ctx, "stopping the device", func(ctx context.Context) error { return s.dut.Stop(ctx, s.env) })
}

// step is one polite step of closing.
func (s *side) step(ctx context.Context, what string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := fn(ctx); err != nil {
		return fmt.Errorf("%s in lab %s: %w", what, s.lab.Name, err)
	}
	return nil
}

// close ends the side's hosts, and with them all that leave did not undo.
func (s *side) close() error {
	if s.lab == nil {
		return nil
	}
	return s.lab.Close()
}
