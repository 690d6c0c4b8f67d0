// Package backend runs the hosts of labs: it starts them, each with an agent, and connects them. Netns is a backend
// whose hosts are namespaces of this machine.
package backend

import (
	"context"
	"fmt"
	"time"
)

// Backend runs the hosts of labs. All above it speaks to the hosts' agents and
// is the same for each backend.
type Backend interface {
	// Describe tells what the backend can do. It is the same at every call.
	Describe() Description
	// Start starts the agent of one host and returns once it answers; on error
	// nothing of the host is left. The name is the host's alone. Start may be
	// called for several hosts at once. The programs of a metered host run on CPUs that
	// no other work of the lab uses, as far as there are enough. The host lasts until its
	// Stop, or until the lab's process ends, however that comes about.
	Start(ctx context.Context, name string, metered bool) (*Host, error)
	// Connect links two hosts this backend has started, before anything is
	// configured on them, and returns the names of the link's ends: the ones
	// asked for where the backend makes the link, others where a cable is there
	// already. It may be called for several links at once, once for each. There
	// is no undo: a link, also a half-made one, ends with its hosts.
	Connect(ctx context.Context, a, b End) (aIf, bIf string, err error)
	// Machine starts an agent that answers for the machine which carries the metered
	// hosts, outside of any lab. It needs no rights, changes nothing, and lasts as a host.
	Machine(ctx context.Context) (*Host, error)
	// Others starts an agent for each machine of the backend that carries no metered host, as Machine does. Its name is
	// that of the host there: "server". None: all hosts are on one machine.
	Others(ctx context.Context) ([]*Host, error)
	// Close ends what the backend has beside its hosts. It is for after them; the end of the lab's process does as much.
	Close() error
}

// Description is what a backend can do, and with what. All above the backend asks it, and takes nothing for granted.
type Description struct {
	// AtOnce is how many labs can stand at the same time: 2 where a device and a clean router each have a router, hosts
	// and links of their own, 1 where there is one router.
	AtOnce    int
	Placement Placement
	CPUs      int // online on the machine that carries the metered hosts
	Clock     Clock
	// Cables is that links are there before labs are: a link needs time to come up, and hosts on one link are connected by
	// a switch, for which a topology needs no host.
	Cables bool
}

// Clock is the time by which hosts stamp what they send and receive.
type Clock struct {
	Common bool          // times of two hosts can be compared
	Bound  time.Duration // by how much their readings of one moment differ at most; 0: it is one clock
	// Kept is that hosts say themselves what their clocks are (agent.Conn.Clock): they are several.
	Kept bool
}

// Note says what the clocks mean for figures such as "One-way delays"; empty where these are exact.
func (c Clock) Note(figures string) string {
	switch {
	case !c.Common:
		return figures + " are left out: the hosts have no common clock."
	case c.Bound > 0:
		return fmt.Sprintf("%s are of two clocks, which differ by up to ± %v.", figures, c.Bound)
	}
	return ""
}

// Options are what a backend is opened with.
type Options struct {
	Run       string // id of the run
	LogDir    string // output of agents and programs, one folder a host
	SecondCPU bool   // programs of metered hosts ask for a second CPU: see Placement.Second
}

// Open opens a backend.
type Open func(ctx context.Context, o Options) (Backend, error)

// End is one end of a link to be made.
type End struct {
	Host *Host  // nil: a switch that is there
	If   string // the name its interface should have
	Port string // the topology's name of the port: "lan"; may be empty
}
