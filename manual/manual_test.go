package manual_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/manual"
	"github.com/gateweigh/gateweigh/manual/manualtest"
)

// odd is a program whose texts roff and Markdown would take for requests and marks.
func odd() manual.Book {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "odd", Short: "Be odd", Long: "" +
		"'tis odd.\n.SH is no section, \\fB no font,\n-- no dash,\n" +
		"<b> no tag, *a* no stress, \"q\" no quote: ~^ … – × ü.\n\n  a   b|c\n  .x  'y'\n`odd sub` goes on"}
	sub := &cobra.Command{Use: "sub ONE | --all", Short: "Go on, 'tis less odd", Run: run,
		Example: "  odd sub \"a\\nb\" 'c'\n\n  .odd sub"}
	sub.Flags().StringP("out", "o", "a-b", "'place' in runs/<UTC>-<x> | `FILE`; .x")
	sub.Flags().Bool("all", false, ".all of them, "+strings.Repeat("and more of them ", 20))
	sub.Flags().String("secret", "", "")
	_ = sub.Flags().MarkHidden("secret")
	root.PersistentFlags().Int("level", 3, "how odd, `'n'`")
	root.AddCommand(sub, &cobra.Command{Use: "hidden", Hidden: true, Run: run})
	return manual.Book{
		Root: root, Section: 8, Title: "-Odd", Version: "1.2~3-4",
		Exit:  []manual.Entry{{Name: "1", Text: ".failed, or `'not`"}, {Name: "2", Text: "less", Commands: []string{"sub"}}},
		Files: []manual.Entry{{Name: ".odd/<x>", Text: "'files'"}}, SeeAlso: []string{"even(7)"},
	}
}

func TestUnusualTexts(t *testing.T) {
	manualtest.Write(t, odd(), t.TempDir())
	pages := odd().Pages()
	if len(pages) != 2 || pages[1].Name != "odd-sub.8" {
		t.Fatalf("%d pages", len(pages))
	}
	for _, want := range []string{".TH ODD\\-SUB 8 \"\"",
		"\\fB\\-o\\fR, \\fB\\-\\-out\\fR \\fIFILE\\fR\n", ".BR odd (8)", "(default \\(dqa\\-b\\(dq)"} {
		if !bytes.Contains(pages[1].Text, []byte(want)) {
			t.Errorf("the page has no %q:\n%s", want, pages[1].Text)
		}
	}
	if bytes.Contains(pages[1].Text, []byte("secret")) {
		t.Error("a hidden flag is shown")
	}
	markdown := string(odd().Markdown())
	for _, want := range []string{"## odd sub\n\n    odd sub ONE | --all [flags]\n",
		"\\<b> no tag, \\*a\\* no stress", "runs/\\<UTC>-\\<x> \\| FILE", "\n    a   b|c\n"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the page has no %q:\n%s", want, markdown)
		}
	}
}

func TestSourceDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := manual.SourceDate(); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH=yesterday") {
		t.Errorf("%v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if date, err := manual.SourceDate(); err != nil || !date.IsZero() {
		t.Errorf("%v, %v", date, err)
	}
}
