package near_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/near"
)

func TestMeant(t *testing.T) {
	known := []string{"ssh-w", "ssh-l", "run", "pap", "chap", "mschapv2", "stop", "streams", "client.kind", "windows"}
	for given, want := range map[string]string{
		"eap": "", "tls": "", "frames": "", "client.speed": "", "": "", "w": "", // other words
		"stp": "stop", "rnu": "run", "nru": "", "sotp": "stop", "STREAMS": "streams",
		"stream": "streams", "mschap2": "mschapv2", "client.knd": "client.kind", "wnidwos": "windows",
	} {
		if want != "" {
			want = near.DidYouMean(want)
		}
		if got := near.Suggestion(given, known); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
	if got := near.Suggestion("ssh", known); got != `; did you mean "ssh-w" or "ssh-l"?` {
		t.Errorf("a first part: %q", got)
	}
}
