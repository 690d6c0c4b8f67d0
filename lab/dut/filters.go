package dut

import (
	"fmt"
	"strings"
)

// Filters are pcap filter expressions by their names in experiments. The lab's frames pass all of them, so that two
// filters differ in the cost of filtering alone, not in what is captured.
var Filters = map[string]string{
	"simple":     "udp",
	FilterOfIPv4: complexFilter(),
}

// FilterOfIPv4 is the name of the filter that IPv4 packets alone pass.
const FilterOfIPv4 = "complex"

// complexFilter compares each packet with 40 addresses. None of them is in the lab: they are of RFC 5737's block for
// documentation.
func complexFilter() string {
	var hosts []string
	for i := range 40 {
		hosts = append(hosts, fmt.Sprintf("host 203.0.113.%d", i+1))
	}
	return "ip and not (" + strings.Join(hosts, " or ") + ") and (udp or tcp)"
}
