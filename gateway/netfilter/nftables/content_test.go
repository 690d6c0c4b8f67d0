// Tests of digests and keys of rules. dial connects to nftables in a namespace of the test, commit sends one batch, and
// toNine are the expressions for UDP to port 9 (nftables_test.go).

package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestDigests: a table's digest changes with its chains and rules, and with nothing else.
func TestDigests(t *testing.T) {
	c, s := dial(t)
	digest := func() [32]byte {
		t.Helper()
		d, err := c.Digest(table)
		must(t, err)
		return d
	}
	has := func() (found bool) {
		t.Helper()
		var err error
		s.Do(func() { found, err = TableExists(table) })
		must(t, err)
		return found
	}
	none := digest()
	if none != ([32]byte{}) || has() {
		t.Errorf("of no table: %x", none)
	}
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddSet(table, Set{Name: "addrs", KeyType: TypeIPv4, KeyBytes: 4})
		b.AddCounter(table, "n")
		b.AddChain(table, "c", nil)
		b.AddRule(table, "c", toNine(Count("n"), Drop())...)
	})
	before := digest()
	if before == none || !has() {
		t.Error("of a table with rules there is none")
	}
	commit(t, c, func(b *Batch) { b.AddElements(table, "addrs", Element{Key: loopback}) })
	s.Run(t, "nft add table ip other; nft add chain ip other c; nft add rule ip other c drop; nft add counter ip test m")
	if now := digest(); now != before {
		t.Error("it changed with elements, counters and another table")
	}
	handle := `$(nft -a list chain ip test c | sed -n 's/.*drop # handle //p')`
	for _, change := range []string{
		"nft replace rule ip test c handle " + handle + " accept", "nft add rule ip test c drop", "nft add chain ip test d",
		"nft flush chain ip test c", "nft flush ruleset",
	} {
		s.Run(t, change)
		if now := digest(); now == before {
			t.Errorf("%s: it is the same", change)
		} else {
			before = now
		}
	}
}

// TestKeys: the keys of a set are listed, however many there are, also while the kernel resizes the set's hash table,
// which it does after so many were added.
func TestKeys(t *testing.T) {
	c, s := dial(t)
	list := func() (keys [][]byte, err error) {
		err = c.Elements(table, "addrs", func(key, _ []byte) { keys = append(keys, key) })
		return keys, err
	}
	if _, err := list(); !errors.Is(err, unix.ENOENT) {
		t.Errorf("of no table: %v", err)
	}
	commit(t, c, func(b *Batch) {
		b.AddTable(table)
		b.AddCounter(table, "n")
		b.AddSet(table, Set{Name: "addrs", KeyType: TypeIPv4, KeyBytes: 4, Counters: true})
	})
	var want [][]byte
	var all []Element
	for i := range 3000 {
		key := []byte{10, 0, byte(i >> 8), byte(i)}
		want = append(want, key)
		all = append(all, Element{Key: key, Counter: "n"})
	}
	for range 20 {
		commit(t, c, func(b *Batch) { b.AddElements(table, "addrs", all...) })
		keys, err := list()
		must(t, err)
		slices.SortFunc(keys, bytes.Compare)
		if !slices.EqualFunc(keys, want, bytes.Equal) {
			t.Errorf("%d keys, %d different ones, want %d", len(keys), len(slices.CompactFunc(keys, bytes.Equal)), len(want))
		}
		s.Run(t, "nft flush map ip test addrs")
		if keys, err := list(); len(keys) != 0 || err != nil {
			t.Errorf("of an empty set: %x, %v", keys, err)
		}
	}
}

// TestCutElements: an attribute that is longer than its message, at whatever depth, is an error, and no key.
func TestCutElements(t *testing.T) {
	message := loopback
	for _, kind := range []uint16{
		unix.NFTA_DATA_VALUE, unix.NFTA_SET_ELEM_KEY, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_LIST_ELEMENTS} {
		var err error
		message, err = netlink.MarshalAttributes([]netlink.Attribute{{Type: kind, Data: message}})
		must(t, err)
	}
	message = append(make([]byte, 4), message...)
	var keys [][]byte
	each := func(key, _ []byte) { keys = append(keys, key) }
	must(t, readElements(message, each))
	if len(keys) != 1 || !bytes.Equal(keys[0], loopback) {
		t.Errorf("read %x", keys)
	}
	for _, index := range []int{4, 8, 12, 16} { // where the length of each attribute is
		cut := bytes.Clone(message)
		binary.NativeEndian.PutUint16(cut[index:], 60)
		keys = nil
		if err := readElements(cut, each); err == nil || len(keys) != 0 {
			t.Errorf("with a wrong length at %d: read %x, %v", index, keys, err)
		}
	}
}
