package uam

import (
	"encoding/json"
	"errors"
	"io"
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

// recordedJSON are answers in JSON of CoovaChilli 1.7, as it sent them to one client: each by the request, in this
// order. "LOGIN" is the answer to the challenge.
var recordedJSON = []struct{ path, answer string }{
	{"/json/status", `{"version":"1.0","clientState":0,"nasid":"nas01","challenge":"c7450049b716d575133204d374d7b89c",` +
		`"location":{"name":"Harbour"},"redir":{"originalURL":"","redirectionURL":"",` +
		`"logoutURL":"http://10.1.0.1:3990/logoff","ipAddress":"10.1.0.2","macAddress":"EA-92-66-DC-E6-19"}}`},
	{"/json/abort", `{"version":"1.0","clientState":0,"nasid":"nas01"}`},
	{"/json/logon?LOGIN", `{"version":"1.0","clientState":1,"nasid":"nas01",` + recordedRedir + `,` +
		recordedSession + `}`},
	{"/json/status", `{"version":"1.0","clientState":1,"nasid":"nas01",` + recordedRedir + `,` + recordedSession + `}`},
	{"/json/logon?username=x&response=00", `{"version":"1.0","clientState":1,"nasid":"nas01",` + recordedSession + `}`},
	{"/json/prelogin", `{"version":"1.0","clientState":1,"nasid":"nas01",` + recordedSession + `}`},
	{"/json/abort", `{"version":"1.0","clientState":1,"nasid":"nas01"}`},
	{"/json/logoff", `{"version":"1.0","clientState":0,"nasid":"nas01","challenge":"1498f493cdded0294aa644b28b60de44",` +
		recordedSession + `}`},
}

const (
	recordedRedir = `"redir":{"originalURL":"http://x.example/","redirectionURL":"",` +
		`"logoutURL":"http://10.1.0.1:3990/logoff","ipAddress":"10.1.0.2","macAddress":"EA-92-66-DC-E6-19"}`
	recordedSession = `"session":{"sessionId":"179603819500000001","userName":"alice","startTime":1796038196,` +
		`"sessionTimeout":0,"terminateTime":0,"idleTimeout":0},"accounting":{"sessionTime":0,"idleTime":0,` +
		`"inputOctets":0,"outputOctets":0,"inputGigawords":0,"outputGigawords":0,"viewPoint":"client"}`
)

// shape are the names of a JSON object in order, with the kind of each value: "session{", "sessionId string", "}".
func shape(t *testing.T, text string) (all []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	for name := ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		word, isString := token.(string)
		_, isNumber := token.(float64)
		switch {
		case isString && name == "":
			name = word
		case isString:
			all, name = append(all, name+" string"), ""
		case isNumber:
			all, name = append(all, name+" number"), ""
		case token == json.Delim('{'):
			all, name = append(all, name+"{"), ""
		default:
			all = append(all, "}")
		}
	}
}

// TestRecordedJSON: our answers have the names of CoovaChilli's in its order, with values of the same kinds, and the
// same state.
func TestRecordedJSON(t *testing.T) {
	w := newWorld(t, Config{Secret: theSecret})
	for _, one := range recordedJSON {
		path := one.path
		if before, after, found := strings.Cut(path, "LOGIN"); found {
			path = before + chap(goodUser, goodPassword, w.challenge(t, clientA), theSecret) + after
		}
		ours := w.ask(t, clientA, path).Body.String()
		var state, theirs struct{ ClientState int }
		if err := errors.Join(json.Unmarshal([]byte(ours), &state), json.Unmarshal([]byte(one.answer), &theirs)); err != nil {
			t.Fatal(err)
		}
		if got, want := shape(t, ours), shape(t, one.answer); !slices.Equal(got, want) || state != theirs {
			t.Errorf("%s: %s\nand CoovaChilli's: %s", path, ours, one.answer)
		}
	}
}
