package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// becomeFor is how long "cluster become" waits for a daemon that is not there: it opens everything anew where it
// becomes a standby.
const becomeFor = 5 * time.Second

func clusterBecomeCommand(socket *string) *cobra.Command {
	return &cobra.Command{
		Use:   "become active|standby",
		Short: "Tell the daemon that keepalived has given this gateway the addresses, or taken them away",
		Long: "Tells the daemon of a pair that it is to serve, or to be the standby. keepalived calls it (notify). It\n" +
			"returns before the daemon serves; gatewayd status says what it does.",
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return err
			}
			_, err := roleOf(args[0])
			return err
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := roleOf(args[0])
			if err != nil {
				return err
			}
			for end := time.Now().Add(becomeFor); ; {
				var c *control.Client
				if c, err = dial(*socket); err == nil {
					err = c.Become(cmd.Context(), role)
				}
				if !errors.Is(err, control.ErrNotRunning) || time.Now().After(end) {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(50 * time.Millisecond):
				}
			}
		},
	}
}

func roleOf(word string) (control.Role, error) {
	for _, r := range []control.Role{control.Active, control.Standby} {
		if word == string(r) {
			return r, nil
		}
	}
	return "", fmt.Errorf("a gateway becomes %q or %q, not %q", control.Active, control.Standby, word)
}

// readiness returns nil if the daemon may serve.
func readiness(ctx context.Context, socket string) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	s, err := c.Status(ctx)
	switch {
	case err != nil:
		return err
	case s.Pair == nil:
		return control.ErrAlone
	case !s.Pair.Ready:
		return errors.New("not ready: " + plain(s.Pair.Why, 400))
	}
	return nil
}

// pairState describes a gateway of two.
func pairState(p control.Pair) string {
	text := fmt.Sprintf("of %s, %s", plain(p.Site, 63), p.Role)
	switch {
	case p.Active == "":
		text += "; the store does not say which gateway serves"
	default:
		text += fmt.Sprintf("; %s serves, term %d", plain(p.Active, 63), p.Term)
	}
	if !p.Ready {
		text += "; not ready: " + plain(p.Why, 400)
	}
	return text
}
