package browsertest

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed axe/axe.min.js
var axe string

// LoadAxe puts axe-core, the accessibility checker that most tools use, into the page.
func LoadAxe(t testing.TB, ctx context.Context) {
	t.Helper()
	Eval[bool](t, ctx, axe+"; true")
}

// Inaccessible lists what axe-core, which LoadAxe has put into the page, finds wrong: by all its rules, or by those
// named. It is an error if hardly any rule applied, or not each of those named.
func Inaccessible(t testing.TB, ctx context.Context, rules ...string) []string {
	t.Helper()
	only, least := "", 10
	if len(rules) > 0 {
		only, least = fmt.Sprintf(`, runOnly: "%s".split(" ")`, strings.Join(rules, " ")), len(rules)
	}
	return Eval[[]string](t, ctx, fmt.Sprintf(`axe.run(document, { resultTypes: ["violations"]%s }).then((r) => {
		const applied = new Set([r.passes, r.violations, r.incomplete].flat().map((rule) => rule.id));
		return applied.size < %d ? ["only " + applied.size + " rules applied: the page was not looked at"]
			: r.violations.flatMap((v) => v.nodes.slice(0, 5).map((n) => v.id + ": " + v.help + ": " +
				n.html.slice(0, 300) + " " + (n.any[0]?.message ?? ""))) })`, only, least))
}
