package dut

import (
	"maps"
	"strings"
	"testing"
)

// TestCountsOfWhatDevicesSay: the numbers of sessions, clients and leases are read from what gatewayd, openNDS and
// CoovaChilli print.
func TestCountsOfWhatDevicesSay(t *testing.T) {
	gateway, err := gatewayCounts(`{"sessions":{"authenticated":2,"known":5},"leases":6}`)
	if want := map[string]int{"sessions": 2, "clients": 7, "leases": 6}; err != nil || !maps.Equal(gateway, want) {
		t.Errorf("gatewayd: %v %v, want %v", gateway, err, want)
	}
	nds, err := openNDSCounts(
		`{"client_list_length":"2","clients":{"02:00:00:00:00:01":{"state":"Authenticated"},"02:00:00:00:00:02":{"state":"Preauthenticated"}}}`)
	if want := map[string]int{"sessions": 1, "clients": 2}; err != nil || !maps.Equal(nds, want) {
		t.Errorf("openNDS: %v %v, want %v", nds, err, want)
	}
	chilli := chilliCounts("02-00-00-00-00-01 10.1.0.2 pass 5f 1 user1\n02-00-00-00-00-02 10.1.0.3 dnat 60 0 -\n\n")
	if want := map[string]int{"sessions": 1, "leases": 2}; !maps.Equal(chilli, want) {
		t.Errorf("CoovaChilli: %v, want %v", chilli, want)
	}
	for _, text := range []string{"", "{", `{"client_list_length":"many"}`} {
		if _, err := openNDSCounts(text); err == nil {
			t.Errorf("openNDS's %q was taken", text)
		}
	}
}

// TestCapturingDevicesHaveOneOrder: errors list the capturing devices in the order of their table.
func TestCapturingDevicesHaveOneOrder(t *testing.T) {
	want := strings.Join(capturing(), ", ")
	for range 20 {
		if _, err := NewCapture("camera", Capture{}); err == nil || !strings.HasSuffix(err.Error(), want) ||
			!strings.HasPrefix(want, "no-capture, tcpdump, ") {
			t.Fatalf("error %v, want a list %s", err, want)
		}
	}
}
