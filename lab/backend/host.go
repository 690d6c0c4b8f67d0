package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	RoleGenerator Role = "generator" // sends frames
	RoleSink      Role = "sink"      // counts and drops frames
	RoleSplitter  Role = "splitter"  // a switch that sends each frame to all capture hosts
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

	leave func()       // what is done before the agent's input is closed; may be nil
	end   func() error // given by the backend: ends the host once its agent's input is closed
}

// answersWithin bounds the wait for an agent that runs and does not answer. One that has ended is noticed at
// once; the first on an emulated CPU takes ten seconds.
const answersWithin = time.Minute

// greet waits until a host's agent answers, and refuses one that is another program
// than the lab. Every backend's Start and Machine end with it.
func (h *Host) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, errors.New("its agent does not answer"))
	defer cancel()
	hello, err := h.Hello(ctx)
	if err != nil {
		return err
	}
	h.Files = hello.MaxOpenFiles
	return hello.Matches()
}

// Stop ends the host: its agent, its programs, its links. Twice is harmless.
func (h *Host) Stop() error {
	if h.leave != nil {
		h.leave()
	}
	h.Conn.Close()
	return h.end()
}

// Together works on several hosts at once: it runs all functions, waits for all,
// and joins their errors. An error text of several hosts stands there once.
func Together(fns ...func() error) error {
	return Each(fns, func(_ int, fn func() error) error { return fn() })
}

// Each is Together for one function and a list of what it works on.
func Each[T any](list []T, fn func(i int, v T) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Go(func() { errs[i] = fn(i, v) })
	}
	wg.Wait()
	reported := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		again := err == nil || reported[err.Error()]
		reported[fmt.Sprint(err)] = true
		return again
	})...)
}
