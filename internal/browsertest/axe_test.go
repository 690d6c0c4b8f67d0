package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestInaccessible: what is wrong is found, what is right is not, and a page in which there is nothing to look at is
// not taken for a right one.
func TestInaccessible(t *testing.T) {
	ctx := Start(t, t.Context(), Program(t))
	for name, c := range map[string]struct{ page, found string }{
		"right": {`<p>Text</p>`, ""},
		"pale":  {`<p style="color: #ddd; background: #fff">Text</p>`, "color-contrast: "},
		"empty": {``, "only 0 rules applied"},
	} {
		if err := chromedp.Do(ctx, chromedp.Navigate("data:text/html,"+
			strings.ReplaceAll("<!doctype html><html lang=en><title>x</title><main>"+c.page, "#", "%23"))); err != nil {
			t.Fatal(err)
		}
		LoadAxe(t, ctx)
		found := Inaccessible(t, ctx, "color-contrast")
		if len(found) > 0 != (c.found != "") || !strings.Contains(strings.Join(found, "\n"), c.found) {
			t.Errorf("%s: found %q, want %q", name, found, c.found)
		}
	}
}
