package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Namespaces tells another process of the machine how to run a program beside those of a host. It is valid until the
// agent ends.
type Namespaces struct {
	InitPID int    `json:"init"`           // process whose process and mount namespaces the programs share
	NetFile string `json:"net"`            // file of their network namespace, below /proc
	Dir     string `json:"dir"`            // their working folder
	CPUs    []int  `json:"cpus,omitempty"` // that they may run on
}

// Namespaces returns the namespaces of the host's programs. With a client's number, which counts from 1, the network
// namespace is the client's; 0 is the host itself.
func (a *Agent) Namespaces(_ context.Context, client int) (in Namespaces, err error) {
	if a.jail.init == nil {
		return in, errors.New("the programs of this host have no namespaces of their own")
	}
	in = Namespaces{
		InitPID: a.jail.init.Process.Pid, NetFile: fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), Dir: a.jail.scratch,
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
		in.NetFile = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	}
	return in, nil
}
