package testbed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Role is what a host that the lab's load needs is there for; other hosts have none.
type Role string

// Roles of hosts.
const (
	RoleClient Role = "client" // holds simulated clients
	RoleServer Role = "server" // the far end of the traffic, and services a device asks
)

// Host is a machine of the lab, spoken to through its agent. How it is run, in a
// namespace or on another machine, is known to its backend alone.
type Host struct {
	*agent.Conn
	Name    string // "a/router"
	Role    Role
	Metered bool     // its CPU is a result
	CPUs    []int    // of its links' polling threads and its programs
	Files   int64    // the hard limit of open files of its agent; 0: none
	Ifs     []string // its ends of the lab's links, in the order of the topology's links

	end func() error // given by the backend: ends the host once its agent's input is closed
}

// greet waits until a host's agent answers, and refuses one that is another program
// than the lab. Every backend's Start and Machine end with it.
func (h *Host) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("its agent does not answer"))
	defer cancel()
	hello, err := h.Hello(ctx)
	if err != nil {
		return err
	}
	h.Files = hello.Files
	return hello.Matches()
}

// Stop ends the host: its agent, its programs, its links. Twice is harmless.
func (h *Host) Stop() error {
	h.Conn.Close()
	return h.end()
}

// Together works on several hosts at once: it runs all functions, waits for all,
// and joins their errors. What two hosts complain of alike is said once.
func Together(fns ...func() error) error {
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	var joined []error
	said := map[string]bool{}
	for _, err := range errs {
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			joined = append(joined, err)
		}
	}
	return errors.Join(joined...)
}
