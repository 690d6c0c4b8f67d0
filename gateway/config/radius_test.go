// Tests of the [radius] keys. minimal is the shortest good file, of five lines, and withRADIUS the same with a RADIUS
// server, of eight (errors_test.go).

package config

import (
	"slices"
	"strings"
	"testing"
)

func TestRADIUSProblems(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"without a server", strings.Replace(minimal, "click-through", "radius", 1),
			[]string{`x.toml:1: radius.primary.address: missing: "radius" is in auth.methods`}},
		{"without a secret", strings.Replace(withRADIUS, "radius.primary.secret", "#", 1),
			[]string{`x.toml:6: radius.primary.secret: missing: give it, or secret_file`}},
		{"two secrets", withRADIUS + "radius.primary.secret_file = \"f\"\n",
			[]string{`x.toml:7: radius.primary.secret: contradicts secret_file: give one of them`}},
		{"the secret is not shown", strings.Replace(withRADIUS, `"s3cret"`, `["s3cret"]`, 1),
			[]string{`x.toml:7: radius.primary.secret: must be one line … 253 bytes`}},
		{"half a second server", withRADIUS + "[radius.secondary]\nsecret = \"x\"\n",
			[]string{`x.toml:8: radius.secondary.address: missing: other keys …`}},
		{"the same server twice", withRADIUS + "[radius.secondary]\nsecret = \"x\"\naddress = \"192.0.2.10:1812\"\n",
			[]string{`x.toml:10: radius.secondary.address: 192.0.2.10:1812 is the …`}},
		{"accounting off", withRADIUS + "radius.accounting = false\nradius.primary.acct_address = \"192.0.2.11\"\n",
			[]string{`x.toml:9: radius.primary.acct_address: has no effect: radius.accounting is false`}},
		{"no port left", strings.Replace(withRADIUS, "192.0.2.10", "192.0.2.10:65535", 1),
			[]string{`x.toml:6: radius.primary.acct_address: missing: there is no port after 65535`}},
		{"interim too often", withRADIUS + "radius.interim = \"30s\"\n",
			[]string{`x.toml:8: radius.interim: must be a … "90s" "15m" … "24h" … 1m … 24h … "30s"`}},
		{"not used", minimal + "[radius]\nmethod = \"chap\"\n[radius.primary]\naddress = \"192.0.2.10\"\n",
			[]string{
				`x.toml:7: radius.method: has no effect: "radius" … auth.methods … devices.radius … true`,
				`x.toml:9: radius.primary.address: has no effect: "radius" … auth.methods … devices.radius … true`}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// wantProblems requires that a configuration is refused with these errors, each on a line of its own.
func wantProblems(t *testing.T, text string, want []string) {
	t.Helper()
	_, err := Parse("x.toml", []byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret is shown: %v", err)
	}
	if got := strings.Split(err.Error(), "\n"); !slices.EqualFunc(got, want, hasWords) {
		t.Errorf("got:\n%s\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

// hasWords reports whether a line has all words of want, in their order, and begins and ends with them; "…" stands for
// any others.
func hasWords(line, want string) bool {
	words := strings.Fields(want)
	if !strings.HasPrefix(line, words[0]) || words[len(words)-1] != "…" && !strings.HasSuffix(line, words[len(words)-1]) {
		return false
	}
	for _, word := range words {
		if word == "…" {
			continue
		}
		_, after, found := strings.Cut(line, word)
		if !found {
			return false
		}
		line = after
	}
	return true
}
