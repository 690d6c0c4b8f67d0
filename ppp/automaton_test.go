// A test of the automaton's table against the one that is printed in RFC 1661.

package ppp

import (
	"strings"
	"testing"
)

// table is RFC 1661, 4.1 as it is printed, without the options r, p and x: actions, and the new
// state's number.
const table = `
Up    2 irc,scr/6 - - - - - - - -
Down  - - 0 tls/1 0 1 1 1 1 tld/1
Open  tls/1 1 irc,scr/6 3 5 5 6 7 8 9
Close 0 tlf/0 2 2 4 4 irc,str/4 irc,str/4 irc,str/4 tld,irc,str/4
TO+   - - - - str/4 str/5 scr/6 scr/6 scr/8 -
TO-   - - - - tlf/2 tlf/3 tlf/3 tlf/3 tlf/3 -
RCR+  - - sta/2 irc,scr,sca/8 4 5 sca/8 sca,tlu/9 sca/8 tld,scr,sca/8
RCR-  - - sta/2 irc,scr,scn/6 4 5 scn/6 scn/7 scn/6 tld,scr,scn/6
RCA   - - sta/2 sta/3 4 5 irc/7 scr/6 irc,tlu/9 tld,scr/6
RCN   - - sta/2 sta/3 4 5 irc,scr/6 scr/6 irc,scr/8 tld,scr/6
RTR   - - sta/2 sta/3 sta/4 sta/5 sta/6 sta/6 sta/6 tld,zrc,sta/5
RTA   - - 2 3 tlf/2 tlf/3 6 6 8 tld,scr/6
RUC   - - scj/2 scj/3 scj/4 scj/5 scj/6 scj/7 scj/8 scj/9
RXJ+  - - 2 3 4 5 6 6 8 9
RXJ-  - - tlf/2 tlf/3 tlf/2 tlf/3 tlf/3 tlf/3 tlf/3 tld,irc,str/5
RXR   - - 2 3 4 5 6 7 8 ser/9
`

// TestTransitions compares the automaton with the RFC's table.
func TestTransitions(t *testing.T) {
	names := strings.Fields("tld irc zrc scr sca scn str sta scj ser tlu tls tlf")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) != int(events) {
		t.Fatalf("%d rows", len(rows))
	}
	for e, row := range rows {
		cells := strings.Fields(row)
		for s, want := range cells[1:] {
			got := "-"
			if tr := transitions[e][s]; tr != same {
				var did []string
				for i, name := range names {
					if tr.do&(1<<i) != 0 {
						did = append(did, name)
					}
				}
				got = strings.Trim(strings.Join(did, ",")+"/"+string(rune('0'+tr.to)), "/")
			}
			if got != want {
				t.Errorf("%s in state %d: %s, want %s", cells[0], s, got, want)
			}
		}
	}
}
