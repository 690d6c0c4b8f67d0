package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestDescriptionAfterSet: when --set changes keys of an experiment, its description names them. It does not claim the
// old values.
func TestDescriptionAfterSet(t *testing.T) {
	shipped, err := loadExperiment("churn")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		sets []string
		want string
	}{
		{nil, shipped.Description},
		{[]string{"clients=20", "blocks=1"}, "churn with clients=20, blocks=1 (without that: " + shipped.Description + ")"},
		{[]string{"clients=20", "description=few clients"}, "few clients"},
	} {
		exp, err := loadExperiment("churn")
		if err != nil {
			t.Fatal(err)
		}
		if err := override(exp, tt.sets); err != nil {
			t.Fatal(err)
		}
		if exp.Description != tt.want {
			t.Errorf("--set %q: %q, want %q", tt.sets, exp.Description, tt.want)
		}
	}
}

// TestLongDescription: a description with many changed keys is cut short, and one of several lines can be stored in
// experiment.toml.
func TestLongDescription(t *testing.T) {
	exp, err := loadExperiment("tunnel-cpu")
	if err != nil {
		t.Fatal(err)
	}
	loads := "offered_mbps=100"
	for mbps := 101; mbps < 200; mbps++ {
		loads += fmt.Sprintf(",%d", mbps)
	}
	if err := override(exp, []string{loads}); err != nil {
		t.Fatal(err)
	}
	if text := exp.Description; !strings.HasPrefix(text, "tunnel-cpu with offered_mbps=100,101") ||
		!strings.HasSuffix(text, "…") {
		t.Errorf("the description is %q", text)
	}
	for _, text := range []string{exp.Description, "lines\tof\na command"} {
		exp.SetDescription(text)
		if err := exp.Set("description", exp.Description); err != nil {
			t.Error(err)
		}
	}
}
