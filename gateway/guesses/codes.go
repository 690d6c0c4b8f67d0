package guesses

import (
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// codeRate bounds the wrong voucher codes of all devices together. A code has no user, so made-up MAC addresses could
// otherwise guess at any rate. While the allowance is used up every code waits, right ones too: to answer them would
// tell right guesses from wrong ones.
var codeRate = budget.Rate{AtOnce: 50, EachSecond: 5}

// Codes counts wrong codes. The zero value is ready to use.
type Codes struct{ used budget.Clock }

// codeWait is how long a code waits then. It is short, because places come every fifth of a second.
const codeWait = time.Second

// WaitCode is how long the client must wait before it may try a code; 0: it may try now. all means that it waits for
// other devices' wrong codes.
func (t *Try) WaitCode() (wait time.Duration, all bool) {
	wait = t.wait()
	if wait == 0 && !t.guard.allCodes().used.Has(codeRate, 1, budget.Now()) {
		return codeWait, true
	}
	return wait, false
}

// FailedCodes are the wrong codes and passwords of the client that still count.
func (t *Try) FailedCodes() int { return t.recent() }

// WrongCode counts a wrong code.
func (t *Try) WrongCode() {
	t.fail()
	t.guard.allCodes().used.Charge(codeRate, 1, budget.Now())
	t.guard.sharing.count(codesKey, 1)
}

// told counts wrong codes at another gateway, of which the last was at a time: at most as many as may be tried at once,
// without those for which there was a place since.
func (c *Codes) told(more int, at time.Time) {
	more = min(more, codeRate.AtOnce) - int(time.Since(at).Seconds()*codeRate.EachSecond)
	if more > 0 {
		c.used.Charge(codeRate, more, budget.Now())
	}
}

// RightCode clears the client's failures after a login with a code.
func (t *Try) RightCode() { t.succeeded() }

func (g *Guard) allCodes() *Codes {
	if g.Codes != nil {
		return g.Codes
	}
	return &g.codes
}
