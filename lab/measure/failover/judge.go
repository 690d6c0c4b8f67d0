package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/traffic/pulse"
	"github.com/gateweigh/gateweigh/lab/words"
)

// account has all clients log out, and compares what the RADIUS server was told.
func (b *openBlock) account(ctx context.Context, t *Trial, w watching) error {
	told, ok := b.Bench.DUT.(dut.Accounted)
	if !ok {
		return nil
	}
	records, err := told.Accounts(ctx)
	if err != nil || records == nil {
		return err
	}
	b.Status("%s: fault %s: clients log out", b.Name(b.Block), b.fault)
	for _, h := range b.Hosts {
		LogOut(ctx, h, b.Traits.Admission)
	}
	sending := func(user string) bool {
		return slices.ContainsFunc(w.clients.Clients.Clients, func(c pulse.Got) bool {
			return user == strings.ReplaceAll(b.Traits.Admission.User, "%d", fmt.Sprint(c.Num))
		})
	}
	t.Accounts, err = AwaitAccounts(ctx, told, func(records []dut.Accounting) Accounts {
		return AccountsOf(records, t.Clients+t.Logins.Admitted, passed(w.clients, w.server), sending)
	})
	return err
}

// maxLate is how late a pulse may leave.
const maxLate = 500 * time.Millisecond

// judge returns the reasons to reject a fault. What the device does is a result. The fault does not count when the lab
// did not work before it, or was held up.
func (b *openBlock) judge(ctx context.Context, t *Trial, w watching, proof bench.Rejects) (bench.Rejects, error) {
	ended, err := b.Ended(ctx)
	if err != nil && b.fault != dut.FaultPower {
		return nil, err
	}
	t.Died = ended.Device
	silent := 0
	for _, c := range w.early.Clients.Clients {
		if !c.Down.Back {
			silent++
		}
	}
	machine := bench.Window{Seconds: t.WatchSeconds, Machine: t.Machine, CPUs: b.CPUs}
	rules := []bench.Rule{bench.RejectFor(proof...), machine.Steal,
		bench.RejectIf(t.CauseError != "", "the fault could not be caused: %s", t.CauseError),
		bench.RejectIf(silent > 0, "%s had no packets before the fault", words.Counted(silent, "client")),
		bench.RejectIf(t.Logins.Early > 0, "%s failed before the fault", words.Counted(t.Logins.Early, "login")),
		bench.RejectIf(t.LateMs > ms(int64(maxLate)), "a packet left %.0f ms late, limit %d ms: the lab was held up",
			t.LateMs, maxLate.Milliseconds())}
	for _, text := range ended.Lab {
		rules = append(rules, bench.RejectIf(b.fault != dut.FaultStore, "lab: %s", text))
	}
	return bench.Judge(rules...)
}
