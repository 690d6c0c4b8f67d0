package analysistest

import (
	"math/rand/v2"
	"time"

	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// LoginQueue is a simulated device of a storm of logins. It admits clients one after the other.
type LoginQueue struct {
	Name    string
	LoginMs float64 // true time and CPU of one login
	// Leaves n means that every n-th client is not admitted. 0 means that all are admitted.
	Leaves int
	Dies   bool   // whether the device ends by itself in the last storm
	Limit  string // default logins.LimitDevice
}

// Storms simulates a run that measured logins. It has one storm a block for each queue and number of clients.
func Storms(seed uint64, queues []LoginQueue, clients []int, blocks int) result.Run {
	run := result.Run{Environment: environment(result.ModeSolo)}
	run.Environment.Measure = logins.Name
	rng := rand.New(rand.NewPCG(seed, 1))
	instant := start
	for block := range blocks {
		for _, n := range clients {
			for _, q := range queues {
				s := q.storm(rng, n)
				s.Block, s.Start, s.Seconds = block, instant, s.Lease.Seconds+s.Login.Seconds+2
				if q.Dies && block == blocks-1 {
					s.Died = []string{q.Name + " on a/router ended by itself: exit status 9: out of memory"}
				}
				instant = instant.Add(time.Duration(s.Seconds * float64(time.Second)))
				run.MeasureRecords = append(run.MeasureRecords, result.Entry{Head: s.Head, Cell: s.Cell(), Record: &s})
			}
		}
	}
	return run
}

func (q LoginQueue) storm(rng *rand.Rand, clients int) logins.Storm {
	s := logins.Storm{
		Head: result.Head{Version: result.Version, Kind: logins.KindStorm, Accepted: true}, DUT: q.Name, Clients: clients,
		DeviceLeases: true,
		SetupSeconds: 1, CreateSeconds: 0.5, TailSeconds: 0.5, IdlePSSMiB: 10, LeasedPSSMiB: 11,
		LoggedPSSMiB: 10 + float64(clients)*20/1024,
	}
	s.Lease = q.phase(rng, clients, q.LoginMs/4, 0)
	s.Login = q.phase(rng, clients, q.LoginMs, q.Leaves)
	return s
}

// phase simulates the logins of all clients, one after the other. Their speed varies by a standard deviation of 5 %.
func (q LoginQueue) phase(rng *rand.Rand, clients int, each float64, leaves int) logins.Phase {
	p := logins.Phase{
		Asked: clients, Limit: q.Limit, RouterBusy: 0.95, EndpointsBusy: 0.4, ClientBusy: 0.3, RadiusBusy: 0.05}
	if p.Limit == "" {
		p.Limit = logins.LimitDevice
	}
	each *= 1 + 0.05*rng.NormFloat64()
	ms := 0.0
	for i := range clients {
		ms += each
		p.Ms = append(p.Ms, ms)
		p.Tries++
		if leaves > 0 && i%leaves == leaves-1 {
			p.GaveUp = append(p.GaveUp, i)
			p.Tries += 7
			p.Retried++
		}
	}
	p.Through = clients - len(p.GaveUp)
	if n := len(p.GaveUp); n > 0 {
		p.Failures = []result.Reason{{First: "logging in client 7, 8 attempts: no answer", Count: n}}
		p.Refusals = []result.Reason{{First: "no answer from 10.1.0.1:2050", Count: n}}
	}
	p.Seconds, p.ThroughSeconds = ms/1000, ms/1000
	ns := int64(each * 1e6 * float64(p.Through))
	p.NAPINs, p.ProcessNs = ns/4, ns-ns/4
	p.RoleNs = map[string]int64{result.RoleRouter: ns, result.RoleClient: ns / 3, result.RoleRadius: ns / 20}
	return p
}
