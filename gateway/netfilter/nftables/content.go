package nftables

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Digest returns a hash of a table's chains and rules in the kernel. gatewayd compares it with an earlier one to find
// out whether another program has changed the table. The kernel's handles are part of it, so it also differs when a
// rule was removed and added again. Sets and counters are not part of it. It is the zero value for a table that does
// not exist or has no chain.
func (c *Conn) Digest(t Table) (sum [sha256.Size]byte, err error) {
	d := sha256.New()
	n := 0
	attrs := netlink.NewAttributeEncoder()
	attrs.String(unix.NFTA_RULE_TABLE, t.Name) // by which the kernel selects rules, but not chains
	of, err := attrs.Encode()
	if err != nil {
		return sum, err
	}
	for _, kind := range []uint16{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		messages, err := c.Dump(kind, t.Family, of)
		if err != nil {
			return sum, fmt.Errorf("reading the table %s: %w", t.Name, err)
		}
		for _, m := range messages {
			added, err := addTo(d, m.Data, t.Name)
			if err != nil {
				return sum, fmt.Errorf("reading the table %s: %w", t.Name, err)
			}
			if added {
				n++
			}
		}
	}
	if n > 0 {
		d.Sum(sum[:0])
	}
	return sum, nil
}

// addTo adds a netlink message about a chain or rule to a hash, if it is of that table, and reports whether it did. The
// message's first four bytes are left out: they hold a number that grows with changes of any table.
func addTo(d hash.Hash, data []byte, table string) (bool, error) {
	if len(data) < 4 {
		return false, errors.New("a message is cut short")
	}
	a, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return false, err
	}
	for a.Next() {
		if a.Type() == unix.NFTA_RULE_TABLE && a.String() == table { // NFTA_CHAIN_TABLE has the same number
			d.Write(data[4:])
			return true, nil
		}
	}
	return false, a.Err()
}

// Digest returns a hash of a batch's messages. Two batches that make the same changes have the same hash.
func (b *Batch) Digest() ([sha256.Size]byte, error) {
	out, err := b.encode()
	return sha256.Sum256(out), err
}
