// Package backend starts the hosts of labs and connects them with links. A host is a place for one role of a lab, such
// as client, router or server, and has an agent, a process that works there. Hosts of the backend Netns are network
// namespaces of this machine; those of SSH are on other machines.
//
// The router that is measured is a metered host: its CPU time is a result. All other hosts are endpoints.
package backend

import (
	"context"
	"fmt"
	"time"
)

// Backend runs the hosts of labs. Its callers speak to the hosts' agents, and
// are the same for all backends.
type Backend interface {
	// Describe tells what the backend can do. It is the same at every call.
	Describe() Description
	// Start starts the agent of one host and returns once it answers; on error
	// nothing of the host is left. Each host needs a name of its own. Start may be
	// called for several hosts at once. The programs of a metered host run on CPUs that
	// no other work of the lab uses, if there are enough. The host lasts until its
	// Stop, or until the lab's process ends, even when it is killed.
	Start(ctx context.Context, name string, metered bool) (*Host, error)
	// Connect links two hosts that this backend has started, before anything is
	// configured on them. It returns the interfaces at the link's ends: with the names
	// of a and b if the backend makes the link, otherwise those of an existing
	// cable. It may be called for several links at once, once for each. There
	// is no undo: a link, even a half-made one, ends with its hosts.
	Connect(ctx context.Context, a, b End) (aIf, bIf string, err error)
	// Machine starts an agent that answers questions about the machine of the metered
	// hosts. It belongs to no lab, needs no root and changes nothing. It lasts as long as a host.
	Machine(ctx context.Context) (*Host, error)
	// Others starts an agent like that of Machine on each other machine of the backend. Its name is
	// that of the host there: "server". The list is empty if all hosts are on one machine.
	Others(ctx context.Context) ([]*Host, error)
	// Close ends what the backend needed beside its hosts, such as connections. It must be called after the hosts' Stop.
	// If it is not called, the end of the lab's process ends the same.
	Close() error
}

// Description is what a backend can do, and which CPUs and clocks its hosts have.
type Description struct {
	// AtOnce is how many labs can exist at the same time: 2, one with the device under test and one with a clean router,
	// or 1 if there are links for one router only.
	AtOnce    int
	Placement Placement
	CPUs      int // online on the machine of the metered hosts
	Clock     Clock
	// Cables means that links exist before the labs do, as cables. Such a link needs time to come up. Where it connects
	// more than two hosts, a real switch is there, and the lab needs no host that is a switch.
	Cables bool
}

// Clock describes the clocks by which hosts stamp the packets that they send and receive.
type Clock struct {
	Common bool          // times of two hosts can be compared
	Bound  time.Duration // largest difference between two hosts' clocks; 0: the hosts have one clock
	// Kept means that there are several clocks, and agent.Conn.Clock tells how well each host's is kept right.
	Kept bool
}

// Note tells readers how exact figures such as "One-way delays" are; empty if the clocks make no difference.
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
	LogDir    string // folder for the output of agents and programs, with a folder for each host
	SecondCPU bool   // programs of metered hosts need a second CPU: see Placement.Second
}

// Open opens a backend.
type Open func(ctx context.Context, o Options) (Backend, error)

// End is one end of a link to be made.
type End struct {
	Host *Host  // nil: an existing switch
	If   string // name for the interface, if the backend makes the link
	Port string // name of the port in the topology: "lan"; may be empty
}
