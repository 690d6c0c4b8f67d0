package dhcp6

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestSpace compares the tree with a list of what is taken: nothing overlaps, and a prefix is found whenever one is
// free. Long: one function an action.
func TestSpace(t *testing.T) {
	pool := netip.MustParsePrefix("2001:db8::/56")
	rapid.Check(t, func(t *rapid.T) {
		tree := &space{pool: pool}
		var taken []netip.Prefix
		overlaps := func(prefix netip.Prefix) bool {
			for _, other := range taken {
				if other.Overlaps(prefix) {
					return true
				}
			}
			return false
		}
		isFree := func(length int) bool {
			for i := range 1 << (length - pool.Bits()) {
				bits := pool.Addr().As16()
				bits[7] = byte(i << (64 - length))
				if !overlaps(netip.PrefixFrom(netip.AddrFrom16(bits), length)) {
					return true
				}
			}
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				length := rapid.IntRange(56, 64).Draw(t, "length")
				wish := pool.Addr().As16()
				wish[7] = rapid.Byte().Draw(t, "wish")
				free := isFree(length)
				got, ok := tree.take(length, netip.AddrFrom16(wish))
				switch {
				case ok != free:
					t.Fatalf("a /%d found: %v, free: %v, taken %v", length, ok, free, taken)
				case ok && (got != got.Masked() || got.Bits() != length || !pool.Overlaps(got) || overlaps(got)):
					t.Fatalf("took %s beside %v", got, taken)
				case ok:
					taken = append(taken, got)
				}
				if want := netip.PrefixFrom(netip.AddrFrom16(wish), length).Masked(); ok && got != want && !overlaps(want) {
					t.Fatalf("took %s although %s was free", got, want)
				}
			},
			"claim": func(t *rapid.T) {
				bits := pool.Addr().As16()
				bits[7] = rapid.Byte().Draw(t, "bits")
				prefix := netip.PrefixFrom(netip.AddrFrom16(bits), rapid.IntRange(56, 64).Draw(t, "length")).Masked()
				free := !overlaps(prefix)
				if ok := tree.claim(prefix); ok != free {
					t.Fatalf("claimed %s: %v, taken %v", prefix, ok, taken)
				}
				if free {
					taken = append(taken, prefix)
				}
			},
			"release": func(t *rapid.T) {
				if len(taken) == 0 {
					return
				}
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				tree.release(taken[i])
				taken = append(taken[:i], taken[i+1:]...)
			},
			"release what is not taken": func(t *rapid.T) {
				bits := pool.Addr().As16()
				bits[7] = rapid.Byte().Draw(t, "bits")
				prefix := netip.PrefixFrom(netip.AddrFrom16(bits), rapid.IntRange(56, 64).Draw(t, "length")).Masked()
				for _, other := range taken {
					if other == prefix {
						return
					}
				}
				tree.release(prefix)
			},
		})
		for _, prefix := range taken {
			tree.release(prefix)
		}
		if tree.root != nil {
			t.Fatal("the tree of an empty space keeps blocks")
		}
	})
}
