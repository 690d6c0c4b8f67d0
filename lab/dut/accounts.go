package dut

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Accounting is one accounting request (RFC 2866) as the lab's RADIUS server took it. A request that was sent again
// because its answer was lost, and that the server knew, is one.
type Accounting struct {
	Status  string // "Start", "Interim-Update", "Stop", "Accounting-On", …
	Session string // Acct-Session-Id
	User    string
	Octets  int64 // both directions, from the session's beginning
}

// Accounted is a device whose RADIUS server can keep what it is told of sessions.
type Accounted interface {
	DUT
	// KeepAccounts has the server keep it. It is called before Start.
	KeepAccounts()
	// Accounts returns what the server has been told, in the order in which it came; nil: the device has no such server.
	Accounts(ctx context.Context) ([]Accounting, error)
}

// KeepAccounts implements Accounted.
func (p *portal) KeepAccounts() { p.Kept = true }

// accountsFile is the file, in the portal's folder on the server, to which FreeRADIUS appends a line a request.
const accountsFile = "accounting"

// Accounts implements Accounted.
func (p *portal) Accounts(ctx context.Context) ([]Accounting, error) {
	if p.Admission.User == "" || !p.Kept {
		return nil, nil
	}
	out, err := p.Host("server").Run(ctx, agent.Command{
		Argv: []string{"sh", "-c", `[ ! -e "$0" ] || cat "$0"`, path.Join(p.Dir, accountsFile)}, Support: true,
		Timeout: queryTimeout})
	if err != nil {
		return nil, fmt.Errorf("reading what the RADIUS server was told: %w", err)
	}
	return parseAccounts(out.Stdout)
}

// parseAccounts reads the server's file: of each request status, session, user, then octets in and out, each with the
// count of its gigawords before it, with bars between them. What a request lacks is empty.
func parseAccounts(text string) (list []Accounting, err error) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) != 7 {
			return nil, fmt.Errorf("the RADIUS server wrote %q: want 7 values", line)
		}
		a := Accounting{Status: f[0], Session: f[1], User: f[2]}
		for i, shift := range []uint{32, 0, 32, 0} {
			if f[3+i] == "" {
				continue
			}
			n, err := strconv.ParseInt(f[3+i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("the RADIUS server wrote %q: %w", line, err)
			}
			a.Octets += n << shift
		}
		list = append(list, a)
	}
	return list, nil
}
