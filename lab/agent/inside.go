package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Inside is where the programs of a host run, as another process of its machine reaches it: namespaces by the files
// that stand for them, until the agent ends.
type Inside struct {
	Init int    `json:"init"` // process whose namespaces of processes and mounts they have
	Net  string `json:"net"`  // file of their network namespace
	Dir  string `json:"dir"`  // where they start
	CPUs []int  `json:"cpus,omitempty"`
}

// Inside says where the host's programs run, or those of its client N (counts from 1); 0 is the host itself.
func (a *Agent) Inside(_ context.Context, client int) (in Inside, err error) {
	if a.jail.init == nil {
		return in, errors.New("the programs of this host have no namespaces of their own")
	}
	in = Inside{Init: a.jail.init.Process.Pid, Net: fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), Dir: a.jail.scratch,
		CPUs: a.opts.ProgramCPUs}
	if client == 0 {
		return in, nil
	}
	pool, err := a.clients()
	if err != nil {
		return in, err
	}
	if client > len(pool.Clients) {
		return in, fmt.Errorf("there is no client %d", client)
	}
	if ns := pool.Clients[client-1].NetNS(); ns != nil {
		in.Net = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	}
	return in, nil
}
