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

// Role is a host's part in the load. Hosts without a part in it, such as the router, have no role.
type Role string

// Roles of hosts.
const (
	RoleClient Role = "client" // holds simulated clients
	RoleServer Role = "server" // the other end of the traffic, and services that a device uses

	RoleGenerator Role = "generator" // sends frames
	RoleSink      Role = "sink"      // counts and drops frames
	RoleSplitter  Role = "splitter"  // a switch that sends each frame to all capture hosts
)

// Host is one host of a lab, or the machine that an agent answers for. It is used through its agent's connection. Only
// the backend knows whether it is a namespace or on another machine.
type Host struct {
	*agent.Conn
	Name    string // "a/router"
	Role    Role
	Metered bool     // its CPU time is a result
	CPUs    []int    // for its links' polling threads and its programs
	Files   int64    // hard limit of open files of its agent; 0: none
	Ifs     []string // its interfaces on the lab's links, in the order of the topology's links

	beforeEnd func()       // called before the agent's input is closed; may be nil
	end       func() error // waits for the agent's end after its input was closed, and kills it if need be
}

// helloTimeout bounds the wait for the first answer of an agent. On an emulated CPU that takes ten seconds. An agent
// that has ended is noticed at once.
const helloTimeout = time.Minute

// awaitHello waits until a host's agent answers. It is an error if the agent is another build than
// the lab. Every backend's Start and Machine end with it.
func (h *Host) awaitHello(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, helloTimeout, errors.New("its agent does not answer"))
	defer cancel()
	hello, err := h.Hello(ctx)
	if err != nil {
		return err
	}
	h.Files = hello.MaxOpenFiles
	return hello.Matches()
}

// Stop ends the host: its agent, its programs, its links. It may be called twice.
func (h *Host) Stop() error {
	if h.beforeEnd != nil {
		h.beforeEnd()
	}
	h.Conn.Close()
	return h.end()
}

// Together runs all functions at the same time, waits for all, and joins their errors.
// A text that several errors share appears once.
func Together(fns ...func() error) error {
	return Each(fns, func(_ int, fn func() error) error { return fn() })
}

// Each calls fn for all elements of a list at the same time, as Together does.
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
