package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestDifferentGateways: cluster status says when gateways that are there run other versions, and which of them does
// not read all. One that is away, or does not say which format it reads, is not meant.
func TestDifferentGateways(t *testing.T) {
	gateway := func(name, version string, format int, there bool) control.Member {
		return control.Member{Name: name, Version: version, Format: format, There: there}
	}
	two := gateway("gw2", "2", 3, true)
	const differ, notAll = "Versions differ: ", "gw1 reads records up to format 2, and gw2 writes format 3: "
	for name, c := range map[string]struct {
		all         []control.Member
		want, never []string
	}{
		"same":   {[]control.Member{gateway("gw1", "2", 3, true), two}, nil, []string{differ, notAll}},
		"format": {[]control.Member{gateway("gw1", "1", 2, true), two}, []string{differ, notAll}, nil},
		"away":   {[]control.Member{gateway("gw1", "1", 2, false), two}, nil, []string{differ, notAll}},
		"silent": {[]control.Member{gateway("gw1", "0", 0, true), two}, []string{differ}, []string{"gw1 reads"}},
		"key": {[]control.Member{two, {Name: "gw1", Distrust: "another key", There: true, Version: "2"}},
			[]string{"Nothing of gw1 is used: another key."}, []string{differ, notAll}},
	} {
		var out bytes.Buffer
		must(t, writeMembers(&out, c.all, time.Now()))
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s lacks %q:\n%s", name, want, &out)
			}
		}
		for _, never := range c.never {
			if strings.Contains(out.String(), never) {
				t.Errorf("%s has %q:\n%s", name, never, &out)
			}
		}
	}
}
