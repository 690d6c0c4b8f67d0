package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
)

var errNoClients = errors.New("there are no clients on this host yet")

// clientCreate makes the host's clients, once: their number, names and
// addresses hold for as long as the host stands.
func (a *Agent) clientCreate(ctx context.Context, cfg client.Config) (none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool.Load() != nil {
		return none{}, errors.New("the host has clients already")
	}
	pool, err := client.NewPool(ctx, cfg, a.runAsClient)
	if err == nil {
		a.pool.Store(pool)
	}
	return none{}, err
}

// runAsClient runs a client's own command, such as a portal's log-in script.
func (a *Agent) runAsClient(ctx context.Context, ns *os.File, argv, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	var out bytes.Buffer
	// No client's number: the caller is the client itself and brings its namespace.
	cmd, cpus, _, err := a.command(ctx, Command{Argv: argv, Env: env, Support: true}, &out, &out)
	if err != nil {
		return "", err
	}
	if err = a.jail.start(cmd, cpus, ns); err == nil {
		err = cmd.Wait()
	}
	return strings.TrimSpace(out.String()), err
}

// clients returns the pool of the host's clients.
func (a *Agent) clients() (*client.Pool, error) {
	pool := a.pool.Load()
	if pool == nil {
		return nil, errNoClients
	}
	return pool, nil
}

// clientList lists the clients' addresses. Clients that lease have none before.
func (a *Agent) clientList(context.Context, none) ([]client.Address, error) {
	pool, err := a.clients()
	if err != nil {
		return nil, err
	}
	return pool.Addresses(), nil
}

// clientLease also answers for static clients, whose addresses are known from
// the start: the caller acts alike for all kinds.
func (a *Agent) clientLease(ctx context.Context, pace client.Pace) ([]client.Outcome, error) {
	pool, err := a.clients()
	if err != nil {
		return nil, err
	}
	return pool.Lease(ctx, pace), nil
}

// logins says how clients log in.
type logins struct {
	Admission client.Admission `json:"admission"`
	Pace      client.Pace      `json:"pace"`
}

func (a *Agent) clientLogin(ctx context.Context, l logins) ([]client.Outcome, error) {
	pool, err := a.clients()
	if err != nil {
		return nil, err
	}
	return pool.Login(ctx, l.Admission, l.Pace), nil
}

// clientStatus asks the portal for each client's state.
func (a *Agent) clientStatus(ctx context.Context, l logins) ([]client.Outcome, error) {
	pool, err := a.clients()
	if err != nil {
		return nil, err
	}
	return pool.Status(ctx, l.Admission, l.Pace), nil
}

func (a *Agent) clientLogout(ctx context.Context, adm client.Admission) (none, error) {
	pool, err := a.clients()
	if err != nil {
		return none{}, err
	}
	return none{}, pool.Logout(ctx, adm)
}

func (a *Agent) clientRelease(ctx context.Context, _ none) (none, error) {
	pool, err := a.clients()
	if err != nil {
		return none{}, err
	}
	return none{}, pool.Release(ctx)
}

// clientVisit has the guests come and go until clientLeave.
func (a *Agent) clientVisit(ctx context.Context, churn client.Churn) (none, error) {
	pool, err := a.clients()
	if err != nil {
		return none{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.visiting != nil {
		return none{}, errors.New("guests come and go already")
	}
	a.visiting, err = pool.Visit(context.WithoutCancel(ctx), churn)
	return none{}, err
}

// clientLeave waits until the guests are gone. Without any it does nothing.
func (a *Agent) clientLeave(context.Context, none) (client.Visits, error) {
	a.mu.Lock()
	v := a.visiting
	a.visiting = nil
	a.mu.Unlock()
	if v == nil {
		return client.Visits{}, nil
	}
	return v.Stop(), nil
}
