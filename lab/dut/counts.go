package dut

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Counted is a DUT that tells what it knows of clients.
type Counted interface {
	DUT
	// Counts are numbers by what they count: "sessions" of admitted clients, and what
	// else the DUT keeps a client. It changes nothing and may be called at any time
	// between Start and Stop.
	Counts(ctx context.Context, env Env) (map[string]int, error)
}

// ask runs a program on the router that the DUT is not billed for.
func ask(ctx context.Context, env Env, argv ...string) (string, error) {
	out, err := env.Router.Run(ctx, agent.Command{Argv: argv, Support: true})
	if err != nil {
		return "", fmt.Errorf("asking the device what it knows: %w", err)
	}
	return out.Stdout, nil
}

// Counts asks gatewayd over its control socket.
func (g *Gateway) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, g.program, "status", "--json", "--socket", path.Join(env.Scratch, "gatewayd/control.sock"))
	if err != nil {
		return nil, err
	}
	return gatewayCounts(text)
}

func gatewayCounts(text string) (map[string]int, error) {
	var status struct {
		Sessions map[string]int
		Leases   int
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("reading gatewayd's status: %w", err)
	}
	known := 0
	for _, n := range status.Sessions {
		known += n
	}
	return map[string]int{"sessions": status.Sessions["authenticated"], "clients": known, "leases": status.Leases}, nil
}

// Counts asks openNDS, which knows no leases: they are its dnsmasq's.
func (o *OpenNDS) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, "ndsctl", "json")
	if err != nil {
		return nil, err
	}
	return openNDSCounts(text)
}

func openNDSCounts(text string) (map[string]int, error) {
	var list struct {
		Length  string `json:"client_list_length"`
		Clients map[string]struct{ State string }
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("reading ndsctl's list: %w", err)
	}
	known, err := strconv.Atoi(list.Length)
	if err != nil {
		return nil, fmt.Errorf("reading ndsctl's list: %w", err)
	}
	in := 0
	for _, c := range list.Clients {
		if c.State == "Authenticated" {
			in++
		}
	}
	return map[string]int{"sessions": in, "clients": known}, nil
}

// Counts asks CoovaChilli, which lists clients with a lease.
func (c *CoovaChilli) Counts(ctx context.Context, env Env) (map[string]int, error) {
	text, err := ask(ctx, env, "chilli_query", "-s", path.Join(env.Scratch, "chilli", "chilli.sock"), "list")
	if err != nil {
		return nil, err
	}
	return chilliCounts(text), nil
}

func chilliCounts(text string) map[string]int {
	in, known := 0, 0
	for line := range strings.Lines(text) {
		switch {
		case strings.TrimSpace(line) == "":
			continue
		case strings.Contains(line, " pass "):
			in++
		}
		known++
	}
	return map[string]int{"sessions": in, "leases": known}
}

var (
	_ Counted = (*Gateway)(nil)
	_ Counted = (*OpenNDS)(nil)
	_ Counted = (*CoovaChilli)(nil)
)
