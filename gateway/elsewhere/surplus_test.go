package elsewhere

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// claims returns sessions from "GATEWAY:DEVICE:SECOND ..." in any order, as a gateway sees them that allows the user
// most. The ID of each is its text.
func claims(text, here string, most int) (all []Claim) {
	for _, one := range strings.Fields(text) {
		c := Claim{ID: one}
		at, device := 0, 0
		fmt.Sscanf(strings.ReplaceAll(one, ":", " "), "%s %d %d", &c.Gateway, &device, &at)
		c.MAC, c.Began = datapath.MAC{2, 0, 0, 0, 0, byte(device)}, time.Unix(int64(at), 0)
		if c.Gateway == here {
			c.Own = &session.UserSession{ID: one, Most: most}
		}
		all = append(all, c)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestSurplus: each gateway ends those of its own sessions that are too many, and all together end as many as are too
// many: first those whose device has a later one, then the latest.
func TestSurplus(t *testing.T) {
	for _, c := range []struct {
		name, sessions string
		most           int
		ends           string
	}{
		{"as many as allowed", "gw1:1:10 gw2:2:20", 2, ""},
		{"one too many", "gw1:1:10 gw2:2:20", 1, "gw2:2:20"},
		{"the earlier has the later name", "gw1:1:30 gw2:2:20", 1, "gw1:1:30"},
		{"at the same moment", "gw1:1:10 gw2:2:10", 1, "gw2:2:10"},
		{"three at the same moment", "gw1:1:10 gw2:2:10 gw3:3:10", 1, "gw2:2:10 gw3:3:10"},
		{"two of one gateway", "gw1:1:10 gw1:3:10 gw2:2:10", 1, "gw1:3:10 gw2:2:10"},
		{"the same device", "gw1:1:10 gw2:1:20", 1, "gw1:1:10"},
		{"the same device, at the same moment", "gw1:1:10 gw2:1:10", 1, "gw1:1:10"},
		{"the same device, and another", "gw1:1:10 gw2:1:20 gw3:2:15", 2, "gw1:1:10"},
		{"the same device, and another, too many", "gw1:1:10 gw2:1:20 gw3:2:15", 1, "gw1:1:10 gw2:1:20"},
		{"the same device, where that is allowed", "gw1:1:10 gw2:1:20", 2, ""},
		{"no limit", "gw1:1:10 gw2:2:20", 0, ""},
		{"a limit that is not known any more", "gw1:1:10 gw2:2:20", -1, ""},
	} {
		var ends []string
		for _, here := range []string{"gw1", "gw2", "gw3"} {
			for _, e := range Surplus(claims(c.sessions, here, c.most)) {
				ends = append(ends, e.ID)
			}
		}
		slices.Sort(ends)
		if got := strings.Join(ends, " "); got != c.ends {
			t.Errorf("%s: %q end, want %q", c.name, got, c.ends)
		}
	}
}

// TestSurplusCause: accounting tells a device that has left from a session that the gateway ends.
func TestSurplusCause(t *testing.T) {
	left := Surplus(claims("gw1:1:10 gw2:1:20", "gw1", 1))
	ended := Surplus(claims("gw1:1:10 gw2:2:20", "gw2", 1))
	if len(left) != 1 || len(ended) != 1 || left[0].Cause != session.UserRequest ||
		ended[0].Cause != session.NASRequest {
		t.Errorf("%+v, %+v", left, ended)
	}
}

// TestTaken: the index tells of a user once for each session, also of one on PPPoE, which has no MAC address there.
func TestTaken(t *testing.T) {
	x, told := New(), []string{}
	x.Taken = func(user string) { told = append(told, user) }
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	x.Put("gw1", "10.1.0.1", record(t, "ann"))
	x.Put("gw3", "10.1.0.1", record(t, "ann"))
	x.Put("gw1", "10.1.0.3", record(t, "leased"))
	if got := fmt.Sprint(told, x.Users()); got != "[ann ann] [ann]" {
		t.Errorf("told %s", got)
	}
}
