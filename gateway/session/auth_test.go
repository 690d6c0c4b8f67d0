// A test of the error of a login that a server has rejected.

package session

import (
	"errors"
	"fmt"
	"testing"
)

func TestRejectionIsErrRejected(t *testing.T) {
	err := fmt.Errorf("logging in: %w", Reject("account expired"))
	var asked interface{ RejectMessage() string }
	if !errors.Is(err, ErrRejected) || !errors.As(err, &asked) || asked.RejectMessage() != "account expired" {
		t.Errorf("%v: does not carry its message as an ErrRejected", err)
	}
	if got, want := err.Error(), "logging in: login rejected: account expired"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if got, want := Reject("").Error(), "login rejected"; got != want {
		t.Errorf("error without message %q, want %q", got, want)
	}
}
