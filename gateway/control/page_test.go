// A test that docs/reference/gatewayd-counters.md is made of this package: metrics, the words of counters, and the
// fields of the socket's JSON. With -update it writes the page.

package control

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestPageOfCounters$ . -args -update

const countersPage = "../../docs/reference/gatewayd-counters.md"

const countersHead = `# Metrics, counters and JSON

What a running gatewayd tells of itself, made from its source (gateway/control, make generate).
What a packet and a byte are: [what is counted](../gateway-reference.md#what-is-counted).

## Metrics

On http://ADDRESS/metrics, with metrics.listen. Those of the process (process_…, go_…) have its CPU time, memory and
open files.

| Metric | Labels | Meaning |
|---|---|---|
`

const wordsHead = `
## Words

Label values of these metrics, keys of "gatewayd status --json", and words of "gatewayd status".
`

const fieldsHead = `
## JSON

"gatewayd status --json" is an object; "gatewayd sessions --json" one for each client, a line each. The socket
run_dir/control.sock speaks HTTP (curl --unix-socket) and gives and takes the same, as the package documentation of
gateway/control lists. Times are RFC 3339. Numbers without another unit are bytes and packets.

With --rates a session has "now": what it sent and received in the second that the command takes, "up_bps" and
"down_bps", bits a second.
`

// shownTypes are the types of control.go that the page describes, each with where its JSON appears.
var shownTypes = []struct{ name, title string }{
	{"Status", "`status --json`"},
	{"Users", "`users` of it"},
	{"Listed", "`listed` of it"},
	{"Server", "`servers` of it"},
	{"Store", "`store` of it"},
	{"IPv6", "`ipv6` of the status"},
	{"DelegatedPrefix", "`delegated` of `ipv6`"},
	{"Traffic", "`traffic` of the status; also in each session"},
	{"Session", "`sessions --json`"},
	{"Limits", "`limits` of a session, and of logins; left out: no limit"},
	{"Left", "`left` of a session; left out: no such limit"},
	{"LastEnd", "`last_end` of a session"},
	{"Member", "`cluster status --json`"},
	{"LoginRequest", "`POST /v1/login`"},
	{"ReloadReply", "`POST /v1/reload`"},
	{"LogoutRequest", "`POST /v1/logout`: exactly one of"},
}

// TestPageOfCounters checks that the page is made of the metrics, their words and the fields of the socket's JSON.
func TestPageOfCounters(t *testing.T) {
	var b strings.Builder
	b.WriteString(countersHead)
	writeMetrics(t, &b)
	b.WriteString(wordsHead)
	for _, f := range Families {
		fmt.Fprintf(&b, "\n**`gatewayd_%s_total`**\n\n| Word | Means |\n|---|---|\n", f.Name)
		for _, w := range f.Values {
			if w.Text == "" {
				t.Errorf("%s %s has no meaning", f.Name, w.Name)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", w.Name, w.Text)
		}
	}
	b.WriteString(fieldsHead)
	for _, s := range shownTypes {
		fmt.Fprintf(&b, "\n**%s**\n\n| Field | Type | Meaning |\n|---|---|---|\n", s.title)
		writeFields(t, &b, s.name)
	}
	goldentest.Compare(t, countersPage, b.String())
}

// writeMetrics writes the rows of all metrics. Their help and notes are their meaning.
func writeMetrics(t *testing.T, b *strings.Builder) {
	described := make(chan *prometheus.Desc, 100)
	collector{}.Describe(described)
	close(described)
	parts := regexp.MustCompile(`fqName: "gatewayd_([^"]+)", help: "([^"]+)\.", .*variableLabels: {([^}]*)}`)
	for d := range described {
		m := parts.FindStringSubmatch(d.String())
		text := m[2]
		if metricNotes[m[1]] != "" {
			text += ". " + metricNotes[m[1]]
		}
		fmt.Fprintf(b, "| `gatewayd_%s` | %s | %s |\n", m[1], strings.ReplaceAll(m[3], ",", ", "), text)
	}
	for name := range metricNotes {
		if !strings.Contains(b.String(), "`gatewayd_"+name+"`") {
			t.Errorf("there is a note on %s, which is no metric", name)
		}
	}
}

// writeFields writes the rows of a type of control.go. Each field's comment is its meaning.
func writeFields(t *testing.T, b *strings.Builder, name string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "control.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	fields := file.Scope.Lookup(name).Decl.(*ast.TypeSpec).Type.(*ast.StructType).Fields.List
	tag := regexp.MustCompile(`json:"([a-z_0-9]+)`)
	for _, f := range fields {
		if len(f.Names) == 0 {
			fmt.Fprintf(b, "| fields of `traffic` | | of the session |\n")
			continue
		}
		text := strings.ReplaceAll(strings.TrimSpace(f.Doc.Text()+f.Comment.Text()), "\n", " ")
		if text == "" {
			t.Errorf("%s.%s has no comment", name, f.Names[0])
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", tag.FindStringSubmatch(f.Tag.Value)[1], kindOf(f.Type), text)
	}
}

// kindOf names a field's type as JSON has it.
func kindOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return kindOf(e.X)
	case *ast.ArrayType:
		if kindOf(e.Elt) == "object" {
			return "list of objects"
		}
		return "list of texts"
	case *ast.MapType:
		return "object of numbers"
	case *ast.Ident:
		switch e.Name {
		case "string", "State":
			return "text"
		case "bool":
			return "true or false"
		case "int", "uint16", "uint32", "uint64", "float64":
			return "number"
		}
		return "object"
	}
	if sel, ok := e.(*ast.SelectorExpr); ok && sel.Sel.Name == "Time" {
		return "time"
	}
	return "text"
}
