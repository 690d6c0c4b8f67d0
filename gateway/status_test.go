package gateway

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
)

// counted gives each counter of Stats a different value, and returns the result of counts and the counters' names by
// value.
func counted[S any](counts func(S) map[string]uint64) (words map[string]uint64, names map[uint64]string) {
	var stats S
	names = map[uint64]string{}
	v := reflect.ValueOf(&stats).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(uint64(1000 + i))
			names[uint64(1000+i)] = v.Type().Field(i).Name
		}
	}
	return counts(stats), names
}

// TestEveryCounterInStatus checks that each counter of a service is in the daemon's status, and so in its metrics,
// under one word, and that the words are those of control.Families. Long: the services.
func TestEveryCounterInStatus(t *testing.T) {
	records := map[string][]string{}
	check := func(service string, words map[string]uint64, names map[uint64]string, more ...string) {
		if len(names) == 0 {
			t.Errorf("%s has no counters", service)
		}
		for word, value := range words {
			if names[value] == "" {
				t.Errorf("%s: %q is no counter, or one that another word has", service, word)
			}
			delete(names, value)
		}
		for _, name := range names {
			t.Errorf("%s: nothing tells of %s", service, name)
		}
		records[service] = append(append(records[service], slices.Collect(maps.Keys(words))...), more...)
	}
	reasons, names := map[string]uint64{}, map[uint64]string{}
	for r := admission.Forwarded; r <= admission.Throttled; r++ {
		reasons[r.String()], names[uint64(r)] = uint64(r), r.String()
	}
	others := []string{"connections", "other-network", "stack", "tagged", "unasked"} // not of admission
	check("packets", reasons, names, others...)
	tellsOf(check, "dhcp", dhcpCounts)
	tellsOf(check, "dhcp", ownCounts)
	tellsOf(check, "repairs", ebpf.Repairs.Counts, "forwarding-again", "nat-again", "connections-again")
	tellsOf(check, "dns", dnsCounts)
	tellsOf(check, "portal", portalCounts)
	tellsOf(check, "uam", uamCounts)
	tellsOf(check, "radius", radiusCounts)
	tellsOf(check, "radius", askedCounts)
	tellsOf(check, "pppoe", pppoeCounts, "backed-off")
	tellsOf(check, "ident", identCounts)
	tellsOf(check, "devices", deviceCounts)
	tellsOf(check, "flowlog", flowCounts)
	tellsOf(check, "admin", adminCounts)
	tellsOf(check, "dhcp6", dhcp6Counts)
	tellsOf(check, "router_advertisements", routerCounts)
	tellsOf(check, "neighbours", neighbourCounts)
	tellsOf(check, "neighbours", claimCounts)
	records["roams"] = slices.Collect(maps.Keys(new(roams).counts()))
	for _, f := range control.Families {
		var want []string
		for _, w := range f.Values {
			want = append(want, w.Name)
		}
		slices.Sort(want)
		slices.Sort(records[f.Name])
		if diff := cmp.Diff(want, records[f.Name]); diff != "" {
			t.Errorf("%s: control.Families has other words than the daemon (-Families +daemon):\n%s", f.Name, diff)
		}
	}
}

// tellsOf checks the counters of one Stats.
func tellsOf[S any](
	check func(string, map[string]uint64, map[uint64]string, ...string),
	service string, counts func(S) map[string]uint64, more ...string,
) {
	words, names := counted(counts)
	check(service, words, names, more...)
}
