package experiment

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Block is one building of the labs: traffic is restarted, the cells measured
// one after the other, and everything torn down. Windows within a block agree
// with each other more than with those of another block, so intervals are taken
// over blocks and a block is the unit of the plan.
type Block struct {
	DUT       string // Clean in A/A blocks
	AA        bool   // both sides are the clean router
	Clients   int
	Direction string
	Profile   string
	Index     int           // counts from 0 within (DUT, Clients, Direction, Profile)
	DUTLab    string        // "a" or "b", taking turns within the group
	Cells     []result.Cell // every offered load once, in the order to measure
	// LoginRate is the pace of a storm of logins, clients a second; 0 is all at
	// once. Such a block has one lab and one cell, of device and clients alone.
	LoginRate float64
}

// unit is a device at one setting: its blocks form a group.
type unit struct {
	dut                string
	clients            int
	direction, profile string
	loginRate          float64
	blocks             int
}

// Plan lists the blocks in the order to measure. Groups advance side by side,
// and A/A blocks lie evenly among them, so that a machine that grows slower
// during the run does so for all alike. The order is the same every time.
func (e *Experiment) Plan() []Block {
	type slot struct {
		at   float64 // share of its group's blocks that lie before the middle of this one
		turn int     // which unit comes first rotates, round after round
		Block
	}
	var slots []slot
	for _, units := range [][]unit{e.units(), e.aaUnits()} {
		for u, un := range units {
			for i := range un.blocks {
				slots = append(slots, slot{
					at:    (float64(i) + 0.5) / float64(un.blocks),
					turn:  (u + i) % len(units),
					Block: e.block(un, i, u),
				})
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.turn, b.turn))
	})
	blocks := make([]Block, len(slots))
	for i, s := range slots {
		blocks[i] = s.Block
	}
	return blocks
}

// units lists the groups of the plan that have a device.
func (e *Experiment) units() []unit {
	var units []unit
	for _, un := range slices.Concat(e.stormUnits(), e.aaUnits()) {
		for _, dut := range e.DUTs {
			if dut != Clean {
				un.dut, un.blocks = dut, e.Blocks
				units = append(units, un)
			}
		}
	}
	return units
}

// stormUnits lists the settings of storms of logins.
func (e *Experiment) stormUnits() []unit {
	var units []unit
	if e.Measure == result.MeasureLogins {
		for _, clients := range e.Clients {
			for _, rate := range e.LoginRates {
				units = append(units, unit{clients: clients, loginRate: rate})
			}
		}
	}
	return units
}

// aaUnits lists the A/A groups: the noise floor depends on the setting, so each
// setting has its own.
func (e *Experiment) aaUnits() []unit {
	var units []unit
	if e.Measure == result.MeasureLogins {
		return nil
	}
	for _, clients := range e.Clients {
		for _, direction := range e.Directions {
			for _, profile := range e.Profiles {
				units = append(units, unit{dut: Clean, clients: clients, direction: direction, profile: profile, blocks: e.AABlocks})
			}
		}
	}
	return units
}

// block fills in block i of a unit. Odd units start in the other lab, so that
// the labs are also balanced between devices within a round.
func (e *Experiment) block(un unit, i, unitNumber int) Block {
	b := Block{
		DUT: un.dut, AA: un.dut == Clean, Clients: un.clients, Direction: un.direction, Profile: un.profile,
		Index: i, DUTLab: [2]string{"a", "b"}[(i+unitNumber)%2], LoginRate: un.loginRate,
	}
	if e.Measure == result.MeasureLogins {
		b.DUTLab, b.Cells = "a", []result.Cell{result.NewCell(result.DUT, un.dut, result.Clients, un.clients)}
	}
	loads := e.loads(un.clients)
	for _, load := range balancedOrder(len(loads), i) {
		b.Cells = append(b.Cells, result.NewCell(result.DUT, un.dut, result.Clients, un.clients, result.OfferedMbps, loads[load], result.Direction, un.direction, result.Profile, un.profile))
	}
	return b
}

// loads are what so many clients offer together, Mbit/s, each load once.
func (e *Experiment) loads(clients int) []float64 {
	list := slices.Clone(e.OfferedMbps)
	for _, share := range e.MbpsPerClient {
		if mbps := share * float64(clients); !slices.Contains(list, mbps) {
			list = append(list, mbps)
		}
	}
	return list
}

// balancedOrder is row i of a Williams design for n treatments (E. J. Williams,
// 1949): over n rows each treatment stands once in each place, and over n rows
// (2n when n is odd) each follows each other one equally often. So neither the
// time within a block nor the load measured before is confounded with the load.
func balancedOrder(n, i int) []int {
	order := make([]int, n)
	for place := range order {
		// 0, 1, n-1, 2, n-2, … shifted by the row.
		step := (place + 1) / 2
		if place%2 == 0 {
			step = n - step
		}
		order[place] = (step + i) % n
	}
	if n%2 == 1 && i/n%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// What EstimatedDuration assumes: means over 174 blocks of quick,
// portal-bandwidth and portal-clients with openNDS, CoovaChilli and an
// allow-list, two labs on two cores. What clients take is with their kinds.
const (
	blockOverhead = 500 * time.Millisecond // labs up and down
	cellOverhead  = 300 * time.Millisecond // traffic started, settled and read out
	// The average device. openNDS takes 3 s, and 0.12 s a client to log in,
	// CoovaChilli 0.5 s and 5 ms, an allow-list next to nothing.
	deviceOverhead  = 1200 * time.Millisecond
	redone          = 0.12            // windows measured again: 1 % of them in quick, 14 to 31 % at 100 clients
	profileOverhead = 5 * time.Second // perf started, its samples read and named
)

// stormLogin is what a log-in takes in a storm of 100 to 1000 clients at a device that is
// not known; stormLogins at devices that are.
const stormLogin = 60 * time.Millisecond

var stormLogins = map[string]time.Duration{"opennds": 150 * time.Millisecond, "coovachilli": 28 * time.Millisecond, "gateway": 3 * time.Millisecond}

// Possible is the experiment with those of its devices that can says yes to: what
// is left of plan and duration on a machine that lacks the others.
func (e *Experiment) Possible(can func(dut string) bool) *Experiment {
	possible := *e
	possible.DUTs = slices.DeleteFunc(slices.Clone(e.DUTs), func(dut string) bool { return !can(dut) })
	return &possible
}

// EstimatedDuration is how long the plan takes with average devices on a
// machine about as quick as the one the constants were measured on. Real runs
// came within a sixth of it. In solo mode the two windows of a pair follow each other.
func (e *Experiment) EstimatedDuration() time.Duration {
	windows := time.Duration((1 + redone) * float64(e.Windows) * float64(e.Window))
	var total time.Duration
	for _, un := range slices.Concat(e.units(), e.aaUnits()) {
		clients, loads := time.Duration(un.clients), time.Duration(len(e.loads(un.clients)))
		if e.Measure == result.MeasureLogins {
			total += time.Duration(un.blocks) * (blockOverhead + deviceOverhead + e.stormDuration(un))
			continue
		}
		device, clean := e.Sides(Block{AA: un.dut == Clean, Clients: un.clients})
		block := blockOverhead + max(device.duration(), clean.duration()) + loads*cellOverhead
		for _, mbps := range e.loads(un.clients) {
			load := e.WarmupOf(mbps, un.direction, device, clean) + windows
			if e.Mode == result.ModeSolo {
				load *= 2
			}
			block += load
		}
		if un.dut != Clean {
			block += deviceOverhead
			if custom, ok := e.Custom[un.dut]; !ok || custom.Like != "" || len(custom.Login)+len(custom.Admit) > 0 {
				block += clients * device.login(cmp.Or(custom.Like, un.dut))
			}
		}
		total += time.Duration(un.blocks) * block
		if un.dut != Clean && e.ProfileWindow > 0 {
			total += loads * (e.ProfileWindow + profileOverhead)
		}
	}
	return total.Round(time.Second)
}

// login is how long a client takes to log in at a device.
func (s Side) login(dut string) time.Duration {
	times := client.KindOf(s.Client).Times
	if times.FastLogin > 0 && strings.HasPrefix(dut, "gateway-") {
		return times.FastLogin
	}
	return times.Login
}

// duration is how long a lab's clients take to come and go.
func (s Side) duration() time.Duration {
	return time.Duration(s.Clients) * client.KindOf(s.Client).Times.Stay
}

// stormDuration is how long the clients of a storm take to lease and to log in.
func (e *Experiment) stormDuration(un unit) time.Duration {
	clients := time.Duration(un.clients)
	lease, login := clients*client.KindOf(e.Client.Kind).Times.Storm, clients*e.stormLogin(un.dut)
	if un.loginRate > 0 {
		least := time.Duration(float64(un.clients) / un.loginRate * float64(time.Second))
		lease, login = max(lease, least), max(login, least)
	}
	return lease + login
}

// stormLogin is what a log-in at a device takes, more or less.
func (e *Experiment) stormLogin(name string) time.Duration {
	name = cmp.Or(e.Custom[name].Like, name)
	family, _, _ := strings.Cut(name, "-") // gateway-ebpf, gateway-tun
	if _, described := e.Custom[name]; described {
		return stormLogin
	}
	return cmp.Or(stormLogins[family], stormLogin)
}
