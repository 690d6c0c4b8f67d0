package dut

import (
	"slices"
	"strings"
	"testing"
)

// TestParseAccounts: what FreeRADIUS wrote is read, octets above 4 GiB and missing values included. A line that is cut
// off is an error.
func TestParseAccounts(t *testing.T) {
	got, err := parseAccounts("Accounting-On|gw|||||\nStop|1|ann|1|5|0|7\nStart|2|bob||||\n")
	want := []Accounting{{Status: "Accounting-On", Session: "gw"},
		{Status: "Stop", Session: "1", User: "ann", Octets: 1<<32 + 12}, {Status: "Start", Session: "2", User: "bob"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"Stop|1|ann\n", "Stop|1|ann|0|x|0|7\n"} {
		if _, err := parseAccounts(text); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
