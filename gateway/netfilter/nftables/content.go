package nftables

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Digest sums up a table's chains and rules as the kernel has them, with their handles: it differs once one of them
// was changed, taken out, or put back by others. Sets and counters are not part of it. Of a table that has
// none, or does not exist, it is the zero value.
func (c *Conn) Digest(t Table) (sum [sha256.Size]byte, err error) {
	d := sha256.New()
	n := 0
	for _, kind := range []uint16{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		messages, err := c.dump(question(kind, t.Family))
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

// addTo adds a message to a sum if it is about a table. What precedes the attributes counts changes of all tables.
func addTo(d hash.Hash, data []byte, table string) (bool, error) {
	if len(data) < 4 {
		return false, errors.New("a message is cut short")
	}
	a, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return false, err
	}
	for a.Next() {
		if a.Type() == unix.NFTA_RULE_TABLE && a.String() == table { // a chain's has the same number
			d.Write(data[4:])
			return true, nil
		}
	}
	return false, a.Err()
}

// Digest sums up a batch: two that make the same changes have the same.
func (b *Batch) Digest() ([sha256.Size]byte, error) {
	out, err := b.encode()
	return sha256.Sum256(out), err
}
