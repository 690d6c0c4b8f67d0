package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestParts: parts are opened in order and closed in the reverse order, also if one cannot be opened or fails. The
// parts are a, b and c; in want, "a+" is the opening of a, and "a-" its closing.
func TestParts(t *testing.T) {
	broken := errors.New("broken")
	forever := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, tt := range map[string]struct {
		opens error                       // of c, when it is opened
		run   func(context.Context) error // what c does while it is open
		want  string                      // what happens, in order
		fails string                      // text of the error that results; "": there is none
	}{
		"all run":              {nil, forever, "a+ b+ c+ ready c- b- a-", ""},
		"one cannot be opened": {broken, forever, "a+ b+ c+ c- b- a-", "broken"},
		"one fails": {
			nil, func(context.Context) error { return broken }, "a+ b+ c+ ready c- b- a-", "c: broken",
		},
		"one ends": {nil, func(context.Context) error { return nil }, "a+ b+ c+ ready c- b- a-", "c: ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			var did []string
			add := func(name string, run func(context.Context) error, err error) part {
				return part{name, func(context.Context) (opened, error) {
					did = append(did, name+"+")
					return opened{run: run, close: func() error { did = append(did, name+"-"); return nil }}, err
				}}
			}
			all := []part{
				add("a", nil, nil), add("b", forever, nil), step("nothing", func() error { return nil }),
				add("c", tt.run, tt.opens),
			}
			err := runParts(ctx, all, func() {
				did = append(did, "ready")
				if tt.fails == "" {
					end()
				}
			})
			if !slices.Equal(did, strings.Fields(tt.want)) {
				t.Errorf("%q, want %s", did, tt.want)
			}
			if (err == nil) != (tt.fails == "") || err != nil && err.Error() != tt.fails {
				t.Errorf("it returns %v, want %q", err, tt.fails)
			}
		})
	}
}
