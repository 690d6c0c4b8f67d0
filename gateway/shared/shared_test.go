package shared

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

var must = netnstest.Must

func of(kind string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, kind) }
}

// wantLeft leaves settings, and checks which are restored and which others need.
func wantLeft(t *testing.T, lan string, former map[string]string, needed ...string) {
	t.Helper()
	must(t, Leave(lan, of("a."), func(left Left) error {
		all := map[string]bool{}
		for _, name := range needed {
			all[name] = true
		}
		if !maps.Equal(left.Former, former) || !maps.Equal(left.Needed, all) {
			t.Errorf("without %s: %+v", lan, left)
		}
		return nil
	}))
}

// TestLastRestores: whichever gateway is the last that needs a setting restores it to what it was before the first one
// changed it, also when it never changed it itself, and others' settings are theirs.
func TestLastRestores(t *testing.T) {
	netnstest.NewSpace(t).Do(func() {
		need := func(lan string, want map[string]string, names ...string) {
			t.Helper()
			if former, err := Need(lan, names...); err != nil || !maps.Equal(former, want) {
				t.Errorf("%s is told %v, %v, want %v", lan, former, err, want)
			}
		}
		need("lan0", map[string]string{}, "a.x", "a.y")
		must(t, Note(map[string]string{"a.x": "0"}))
		need("br-lan.1", map[string]string{"a.x": "0"}, "a.x")
		must(t, Note(map[string]string{"a.x": "7"})) // somebody switched it off meanwhile
		need("lan2", map[string]string{}, "b.z")
		need("lan0", map[string]string{"a.x": "0"}, "a.x", "a.y") // again
		wantLeft(t, "lan0", map[string]string{}, "a.x")
		wantLeft(t, "lan0", map[string]string{}, "a.x") // again
		broken := errors.New("broken")
		err := Leave("br-lan.1", of("a."), func(Left) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		wantLeft(t, "br-lan.1", map[string]string{"a.x": "0"}) // what failed before is there still
		wantLeft(t, "br-lan.1", map[string]string{})
		must(t, Leave("lan2", of("b."), func(Left) error { return nil }))
	})
}

// TestNothingIsLeft: the records are of a namespace, show in nft, and are gone with the last gateway.
func TestNothingIsLeft(t *testing.T) {
	space, other := netnstest.NewSpace(t), netnstest.NewSpace(t)
	space.Do(func() {
		_, err := Need("br-lan.1", "a.x")
		must(t, errors.Join(err, Note(map[string]string{"a.x": "0"})))
	})
	other.Do(func() { wantLeft(t, "br-lan.1", map[string]string{}) })
	rules := space.Run(t, "nft list ruleset; nft list ruleset | nft -c -f -")
	for _, want := range []string{"need/a.x/br_2dlan_2e1", "was/a.x/0"} {
		if !strings.Contains(rules, want) {
			t.Errorf("nft does not show %s:\n%s", want, rules)
		}
	}
	space.Do(func() { wantLeft(t, "br-lan.1", map[string]string{"a.x": "0"}) })
	for _, s := range []*netnstest.Space{space, other} {
		if left := s.Run(t, "nft list ruleset"); left != "" {
			t.Errorf("left:\n%s", left)
		}
	}
}

// TestAtTheSameTime: of gateways that come and go at the same time each last one restores.
func TestAtTheSameTime(t *testing.T) {
	space := netnstest.NewSpace(t)
	done := make(chan error)
	const many, rounds = 4, 10
	value := "0" // of the setting; the records guard it
	for i := range many {
		go space.Do(func() {
			var err error
			for range rounds {
				lan := fmt.Sprint("lan", i)
				_, e := Need(lan, "a.x")
				err = errors.Join(err, e, change(func(r *records, _ *batch) error {
					if _, noted := r.was["a.x"]; !noted && value != "0" {
						return errors.New("nobody knows what it was")
					}
					return nil
				}), Note(map[string]string{"a.x": "0"}))
				err = errors.Join(err, change(func(*records, *batch) error { value = "1"; return nil }))
				err = errors.Join(err, Leave(lan, of("a."), func(left Left) error {
					if !left.Needed["a.x"] {
						value = left.Former["a.x"]
					}
					return nil
				}))
			}
			done <- err
		})
	}
	for range many {
		must(t, <-done)
	}
	if value != "0" {
		t.Errorf("in the end it is %q", value)
	}
}
