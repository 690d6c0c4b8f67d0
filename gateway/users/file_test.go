// Tests of the users' file: its format, and what is said of mistakes in it.

package users

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// someHash is a valid hash of an unknown password.
const someHash = "$argon2id$v=19$m=65536,t=3,p=4$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"

// TestProblemsNameFileAndLine: each mistake of a file is reported with its line. Long: most lines are the table of
// cases.
func TestProblemsNameFileAndLine(t *testing.T) {
	const number = "must be a whole number of at least 1 with k, M, G or T behind it or nothing"
	const duration = "must be a duration such as 90m or 8h, at least 1s"
	for _, tt := range []struct {
		name, text string
		want       []string // every line of the error
	}{
		{"no hash", "# x\n\nalice", []string{"f:3: must be name:hash or name:hash:limits"}},
		{"no name", ":" + someHash, []string{"f:1: the name must be 1 to 253 bytes of UTF-8 without control characters"}},
		{"control character", "a\tb:" + someHash,
			[]string{"f:1: the name must be 1 to 253 bytes of UTF-8 without control characters"}},
		{"no text", "a\xff:" + someHash,
			[]string{"f:1: is not UTF-8: save the file as UTF-8"}},
		{"password in clear", "alice:tulip",
			[]string{`f:1: account "alice": the password must be an argon2id hash: make it with gatewayd hash-password`}},
		{"other hash", "alice:$6$salt$hash",
			[]string{`f:1: account "alice": the password must be an argon2id hash: make it with gatewayd hash-password`}},
		{"other parameters", "alice:" + strings.Replace(someHash, "m=65536", "m=4194304", 1),
			[]string{`f:1: account "alice": the hash has other parameters than $argon2id$v=19$m=65536,t=3,p=4$…: make it anew with gatewayd hash-password`}},
		{"cut", "alice:" + someHash[:len(someHash)-1],
			[]string{`f:1: account "alice": the hash must end in 32 bytes in base64 without padding: was the line cut?`}},
		{"cut in the salt", "alice:" + hashPrefix + "MDEy", []string{
			`f:1: account "alice": the hash's salt must be 8 to 64 bytes in base64 without padding: was the line cut?`}},
		{"something behind", "alice:" + someHash + "$x",
			[]string{`f:1: account "alice": the hash must end in 32 bytes in base64 without padding: was the line cut?`}},
		{"twice", "alice:" + someHash + "\nbob:" + someHash + "\nalice:" + someHash,
			[]string{`f:3: account "alice" is there twice`}},
		{"empty limits", "alice:" + someHash + ":", []string{`f:1: account "alice": "": must be key=value`}},
		{"unknown limit", "alice:" + someHash + ":up=5M",
			[]string{`f:1: account "alice": "up": unknown limit: known are session_timeout, idle_timeout, up_rate, down_rate, up_quota, down_quota, total_quota, sessions_per_user, connections`}},
		{"limit twice", "alice:" + someHash + ":up_bps=1,up_bps=2", []string{`f:1: account "alice": up_bps is there twice`}},
		{"limit twice, once by its former name", "alice:" + someHash + ":up_rate=10k,up_bps=2",
			[]string{`f:1: account "alice": up_bps is there twice`}},
		{"limits as in the configuration",
			"a:" + someHash + ":up_rate=5\nb:" + someHash + ":total_quota=10G\nc:" + someHash + ":sessions_per_user=0",
			[]string{
				`f:1: account "a": up_rate: must be bits a second such as "512k", "10M" or "1G", from 8k to 1000G, not "5"`,
				`f:2: account "b": total_quota: must be bytes such as "500MB", "5GB" or "1.5GiB", at least 1 B, not "10G"`,
				`f:3: account "c": sessions_per_user: must be a whole number of at least 1, not "0"`}},
		{"limits", "a:" + someHash + ":up_bps=0\nb:" + someHash + ":up_bps=-1\nc:" + someHash + ":up_bps=5m\nd:" + someHash +
			":up_bps=9223373T\ne:" + someHash + ":up_bps=kM\nf:" + someHash + ":session_timeout=8\ng:" + someHash +
			":idle_timeout=-1h",
			[]string{
				`f:1: account "a": up_bps: ` + number + `, not "0"`, `f:2: account "b": up_bps: ` + number + `, not "-1"`,
				`f:3: account "c": up_bps: ` + number + `, not "5m"`, `f:4: account "d": up_bps: ` + number + `, not "9223373T"`,
				`f:5: account "e": up_bps: ` + number + `, not "kM"`,
				`f:6: account "f": session_timeout: ` + duration + `, not "8"`,
				`f:7: account "g": idle_timeout: ` + duration + `, not "-1h"`}},
		{"long line", "alice:" + someHash + "\n#" + strings.Repeat("x", 4096), []string{"f:2: is longer than 4096 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			accounts, err := parse("f", strings.NewReader(tt.text))
			if err == nil || accounts != nil {
				t.Fatalf("accepted: %v", accounts)
			}
			if got, want := err.Error(), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestByteOrderMark: a byte order mark at the beginning of a line, as where files were joined, is not part of a name.
func TestByteOrderMark(t *testing.T) {
	accounts, err := parse(
		"f", strings.NewReader("\ufeffann:"+someHash+"\r\n\ufeff# more\r\n\ufeff\ufeffbob:"+someHash+"\r\n\ufeff\r\n"))
	if err != nil || len(accounts) != 2 || accounts["ann"].hash.tag == nil || accounts["bob"].hash.tag == nil {
		t.Errorf("%q, %v", slices.Sorted(maps.Keys(accounts)), err)
	}
	if _, err := parse("f", strings.NewReader("\ufeffann:"+someHash+"\nann:"+someHash)); err == nil {
		t.Error("an account that is there twice, once behind a mark, is taken")
	}
}

// TestLimitsAreDocumented: the manual has an example of each limit, and its former name.
func TestLimitsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/gateway-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, manual, _ := strings.Cut(string(text), "## Users' file")
	manual, _, _ = strings.Cut(manual, "\n## ")
	for _, known := range limitKeys {
		if !strings.Contains(manual, known.key+"=") || !strings.Contains(manual, "`"+known.formerKey+"`") &&
			known.formerKey != "" {
			t.Errorf("%s, formerly %q, is not in the manual", known.key, known.formerKey)
		}
	}
	for line := range strings.Lines(manual) {
		if _, limits, ok := strings.Cut(line, "…:"); ok {
			if _, err := parseLimits(strings.TrimSpace(limits)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := parse("f", strings.NewReader(strings.Repeat("x\n", 100_000)))
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) || len(all.Unwrap()) != listfile.MaxProblems {
		t.Errorf("%d bytes of error, want %d lines", len(err.Error()), listfile.MaxProblems)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("alice:" + someHash)
	f.Add("# comment\n\nalice:" + someHash + ":session_timeout=8h,up_rate=5M,total_bytes=5M\nbob:" + someHash)
	f.Add("alice:" + someHash + ":up_bps=18446744073709551615")
	f.Add("alice")
	f.Fuzz(func(t *testing.T, text string) {
		accounts, err := parse("f", strings.NewReader(text))
		if err != nil {
			if accounts != nil || !strings.Contains(err.Error(), "f:") {
				t.Errorf("%v with error %v", accounts, err)
			}
			return
		}
		for name, a := range accounts {
			if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsAny(name, ":\n\r\x00") {
				t.Errorf("name %q", name)
			}
			if len(a.hash.tag) != tagSize || len(a.hash.salt) < 8 {
				t.Errorf("%q: hash %v", name, a.hash)
			}
			checkLimits(t, a.limits)
		}
	})
}

// checkLimits checks limits against what a file can contain.
func checkLimits(t *testing.T, l session.Limits) {
	t.Helper()
	for _, d := range []time.Duration{l.SessionTimeout, l.IdleTimeout} {
		if d != 0 && d < time.Second {
			t.Errorf("time-out %s", d)
		}
	}
	for _, n := range []uint64{l.UpBps, l.DownBps, l.UpBytes, l.DownBytes, l.TotalBytes} {
		if n > 1<<63 {
			t.Errorf("quantity %d", n)
		}
	}
}
