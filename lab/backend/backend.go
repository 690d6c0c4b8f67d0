// Package backend runs the hosts of labs: it starts them, each with an agent, and connects them. Netns is a backend
// whose hosts are namespaces of this machine.
package backend

import "context"

// Backend runs the hosts of labs. All above it speaks to the hosts' agents and
// is the same for each backend.
type Backend interface {
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
}

// End is one end of a link to be made.
type End struct {
	Host *Host
	If   string // the name its interface should have
}
