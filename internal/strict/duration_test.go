package strict

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"90m": 90 * time.Minute, "1d": day, "14d": 14 * day,
		"1d12h": 36 * time.Hour, "0d30m": 30 * time.Minute, "65535d": 65535 * day} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "65536d", "1d24h", "1d-1h", "1d1d", "1dd", "1d ", "12", "h1d",
		"1e3d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
