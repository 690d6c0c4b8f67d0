package main

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/studies"
)

// claims writes the page of the claims of published studies, with the criteria by which they hold.
func claims(string) (string, error) {
	var b strings.Builder
	b.WriteString(head("Claims of published studies",
		"What each is judged on: [studies](../studies.md). In brackets the study's section. "+
			"Numbers are bounds of 95 % intervals unless said otherwise; what lies on both sides is left open."))
	for _, st := range studies.All() {
		fmt.Fprintf(&b, "## Study %d\n\n| Claim | In our words | Holds here | Does not hold here |\n|---|---|---|---|\n",
			st.Number)
		for _, c := range st.Claims {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, cell(c.Text), cell(c.Holds), cell(c.Not))
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String()) + "\n", nil
}
