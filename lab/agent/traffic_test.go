// A test of the kinds of traffic that an agent can send.

package agent

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/traffic"
)

func TestEveryKindOfTrafficHasTwoEnds(t *testing.T) {
	for _, name := range traffic.Kinds(nil) {
		if k, err := (Traffic{Kind: name}).ends(); err != nil || k.serve == nil || k.start == nil {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
	if _, err := (Traffic{Kind: "pigeon"}).ends(); err == nil {
		t.Error("an unknown kind is no error")
	}
}
