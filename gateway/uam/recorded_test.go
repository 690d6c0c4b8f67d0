package uam

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded are redirects of CoovaChilli 1.7 with the secret "shared", as it sent them, by the request.
var recorded = map[string]string{
	"/prelogin": "http://192.0.2.2:8000/login?theme=sea&res=notyet&uamip=10.1.0.1&uamport=3990&" +
		"challenge=14de94bd839b41c55ee85d6157c83cf3&called=8A-15-A4-FF-06-98&mac=FE-38-6F-A0-7D-53&ip=10.1.0.2&" +
		"nasid=nas01&sessionid=179603778000000001&userurl=&md=AA39343A7B7722E96D8C5462C17CF56D",
	"/status": "http://192.0.2.2:8000/login?theme=sea&res=notyet&uamip=10.1.0.1&uamport=3990&" +
		"challenge=14de94bd839b41c55ee85d6157c83cf3&called=8A-15-A4-FF-06-98&uid=&mac=FE-38-6F-A0-7D-53&ip=10.1.0.2&" +
		"nasid=nas01&sessionid=179603778000000001&userurl=&md=E48E14F129AB62CA5972078976FACADE",
}

// names are the names of a URL's parameters, in order.
func names(location string) (all []string) {
	_, query, _ := strings.Cut(location, "?")
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		all = append(all, name)
	}
	return all
}

// TestRecordedRedirects: ours have the parameters of CoovaChilli's in its order, and its checksum.
func TestRecordedRedirects(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	w.challenges.issue(w.clients[clientA].Key, "", time.Now())
	for path, theirs := range recorded {
		made, sum, _ := strings.Cut(theirs, "&md=")
		if got := Checksum(made, theSecret); got != sum {
			t.Errorf("%s: the checksum is %s, and CoovaChilli's %s", path, got, sum)
		}
		ours := w.ask(t, clientA, path).Header().Get("Location")
		if !slices.Equal(names(ours), names(theirs)) {
			t.Errorf("%s: parameters %v, and CoovaChilli's %v", path, names(ours), names(theirs))
		}
	}
}
