package datapath

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestPageOfBudgets$ . -args -update

const budgetsPage = "../../docs/reference/gatewayd-budgets.md"

const budgetsHead = `# Budgets

What a client may have gatewayd do, made from its source (gateway/datapath, make generate). What they are for:
[gateway.md](../gateway.md#budgets-before-login).

| Of each address, and of each MAC address, before login | At once, after a silence | A second |
|---|--:|--:|
`

// TestPageOfBudgets checks that the reference page of budgets has the values of Budgets and Senders. It describes each
// kind of work by the comment of its constant. "go generate" writes the page.
func TestPageOfBudgets(t *testing.T) {
	var b strings.Builder
	b.WriteString(budgetsHead)
	for i, text := range worksTexts(t) {
		writeRate(&b, text, Budgets[i])
	}
	b.WriteString("\n| Of each MAC address, logged in or not | At once | A second |\n|---|--:|--:|\n")
	for _, text := range []string{
		"DHCP requests", "ARP probes for a free address",
		"with `dhcp.mode = \"external\"`: packets from addresses that the gateway does not know yet",
	} {
		writeRate(&b, text, Senders)
	}
	fmt.Fprintf(&b, "\nOf each of these three, all MAC addresses together that have no lease "+
		"and were not among the last %d to send:\n", MostSenders)
	b.WriteString("\n| | At once | A second |\n|---|--:|--:|\n")
	writeRate(&b, "new MAC addresses", budget.Newcomers(Senders, MostSenders))
	fmt.Fprintf(&b, "\nThe MAC addresses of %d strangers are remembered; "+
		"beyond that those that were silent longest begin anew.\n", MostStrangers)
	goldentest.Compare(t, budgetsPage, b.String())
}

// worksTexts returns the comments of the kinds of work, in their order.
func worksTexts(t *testing.T) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "strangers.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		list, ok := d.(*ast.GenDecl)
		if !ok || list.Tok != token.CONST || list.Specs[0].(*ast.ValueSpec).Names[0].Name != "Datagram" {
			continue
		}
		for _, s := range list.Specs[:NumWorks] {
			texts = append(texts, strings.TrimSpace(s.(*ast.ValueSpec).Comment.Text()))
		}
	}
	if len(texts) != int(NumWorks) {
		t.Fatalf("%d comments for %d kinds of work", len(texts), NumWorks)
	}
	return texts
}

// writeRate writes a row of a table. It writes rates below one a second as rates a day.
func writeRate(b *strings.Builder, text string, r budget.Rate) {
	each := fmt.Sprint(r.EachSecond)
	if r.EachSecond < 1 {
		each = fmt.Sprintf("%.0f a day", r.EachSecond*24*60*60)
	}
	fmt.Fprintf(b, "| %s | %d | %s |\n", text, r.AtOnce, each)
}
