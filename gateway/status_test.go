package gateway

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/admission"
)

// counted gives each counter of Stats a different value, and returns the result of counts
// and the counters' names by value.
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

// TestEveryCounterIsTold checks that each counter of a service is in the daemon's status,
// and so in its metrics, under one word that the reference explains.
func TestEveryCounterIsTold(t *testing.T) {
	manual, err := os.ReadFile("../docs/gateway-reference.md")
	must(t, err)
	check := func(service string, words map[string]uint64, names map[uint64]string) {
		_, row, found := strings.Cut(string(manual), "\n| `gatewayd_"+service+"_total` |")
		row, _, _ = strings.Cut(row, "\n")
		if !found || len(names) == 0 {
			t.Errorf("%s: no row of the manual, or no counters: %v", service, names)
		}
		for word, value := range words {
			if names[value] == "" {
				t.Errorf("%s: %q is no counter, or one that another word has", service, word)
			}
			delete(names, value)
			if !strings.Contains(row, "`"+word+"`") {
				t.Errorf("%s: the manual does not say what %q is", service, word)
			}
		}
		for _, name := range names {
			t.Errorf("%s: nothing tells of %s", service, name)
		}
	}
	words, names := counted(dhcpCounts)
	check("dhcp", words, names)
	reasons := map[string]uint64{}
	names = map[uint64]string{}
	for r := admission.Forwarded; r <= admission.Overflow; r++ {
		reasons[r.String()], names[uint64(r)] = uint64(r), r.String()
	}
	check("packets", reasons, names)
	words, names = counted(repairCounts)
	check("repairs", words, names)
	words, names = counted(dnsCounts)
	check("dns", words, names)
	words, names = counted(portalCounts)
	check("portal", words, names)
	words, names = counted(radiusCounts)
	check("radius", words, names)
}
