package main

import "testing"

// TestDescriptionAfterSet: what heads the report does not claim clients or loads that
// --set has changed.
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
