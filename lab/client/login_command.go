package client

import (
	"context"
	"errors"
	"fmt"
)

// What a command knows of the client it runs as, beside the lab's own variables,
// which experiment.Vars lists.
const (
	varClient   = "GATEWEIGH_CLIENT"    // its number, from 1
	varClientIP = "GATEWEIGH_CLIENT_IP" // its address
)

// commandPortal logs in with the user's own commands, run in the client's namespace.
type commandPortal struct {
	net Network
	adm Admission
	num int
	// refused is that the last log-in of this portal failed.
	refused bool
}

func (c *commandPortal) login(ctx context.Context) error {
	err := c.run(ctx, "login", c.adm.Login)
	c.refused = err != nil
	return err
}

// status is the status command's exit status: zero is admitted. Without a
// status command the log-in command's word is all there is, so it counts.
func (c *commandPortal) status(ctx context.Context) (bool, error) {
	if len(c.adm.Status) == 0 {
		return !c.refused, nil
	}
	err := c.run(ctx, "status", c.adm.Status)
	if err != nil && ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

func (c *commandPortal) logout(ctx context.Context) error {
	if len(c.adm.Logout) == 0 {
		return nil
	}
	return c.run(ctx, "logout", c.adm.Logout)
}

func (*commandPortal) leave() {} // its commands have ended

// run executes one of the user's commands as the client.
func (c *commandPortal) run(ctx context.Context, verb string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("the " + verb + " command is empty")
	}
	env := []string{
		fmt.Sprintf("%s=%d", varClient, c.num),
		varClientIP + "=" + c.net.LocalIP().String(),
	}
	if _, err := c.net.Exec(ctx, argv, env); err != nil {
		return fmt.Errorf("running the %s command %q: %w", verb, argv, err)
	}
	return nil
}

var _ portal = (*commandPortal)(nil)
