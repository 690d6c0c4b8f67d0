package dut

import (
	"fmt"
	"strings"
)

// Filters are what capture programs may be asked to look for, as pcap expressions by their names. Each
// lets the lab's frames pass, so that only the cost of looking differs.
var Filters = map[string]string{
	"simple":  "udp",
	"complex": complexFilter(),
}

// complexFilter has 40 addresses to compare with, none of which the lab has: RFC 5737's.
func complexFilter() string {
	var hosts []string
	for i := range 40 {
		hosts = append(hosts, fmt.Sprintf("host 203.0.113.%d", i+1))
	}
	return "ip and not (" + strings.Join(hosts, " or ") + ") and (udp or tcp)"
}
