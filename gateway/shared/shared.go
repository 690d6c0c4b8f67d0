// Package shared records which gateways of a network namespace need a setting of the kernel that they share, and its
// former value, so that the last gateway that no longer needs it restores it.
//
// The records are chains without rules in a table of nftables, which no packet meets:
//
//	need/SETTING/LAN    the gateway of a LAN needs a setting
//	was/SETTING/VALUE   its value before the first of them changed it
//
// They live as long as the namespace, and so as long as what they are about: also when a gateway is killed, until it
// has started again and ended, or was detached.
package shared

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// table has the records. No guard's has its name: theirs have no - after the first.
var table = nftables.Table{Family: nftables.IPv4, Name: guard.Prefix + "shared-settings"}

// IsOwnTable reports whether a table of nftables has records of this package.
func IsOwnTable(family uint8, name string) bool {
	return nftables.Table{Family: nftables.Family(family), Name: name} == table
}

// Names of settings, and values, have letters, digits, and of other characters only . _ and -.

// Need records that the gateway of a LAN needs settings, before it looks at them, and returns the former values of
// those that gateways have changed.
func Need(lan string, names ...string) (former map[string]string, err error) {
	err = change(func(r *records, b *batch) error {
		for _, name := range names {
			if !r.needs[name][short(lan)] {
				b.AddChain(table, needed(name, lan), nil)
			}
		}
		former = maps.Clone(r.was)
		maps.DeleteFunc(former, func(name, _ string) bool { return !slices.Contains(names, name) })
		return nil
	})
	return former, err
}

// Note records the former values of settings that the gateway is about to change, but of those that others have changed
// already.
func Note(former map[string]string) error {
	return change(func(r *records, b *batch) error {
		for name, value := range former {
			if _, noted := r.was[name]; !noted {
				b.AddChain(table, had(name, value), nil)
			}
		}
		return nil
	})
}

// Left are settings as they are without a gateway.
type Left struct {
	Needed map[string]bool   // by other gateways
	Former map[string]string // the former values of those that nobody needs
}

// Leave records that the gateway of a LAN no longer needs settings whose names match, and has restore restore those
// that nobody needs. Meanwhile no other gateway comes. It may be called again after an error.
func Leave(lan string, match func(name string) bool, restore func(Left) error) error {
	return change(func(r *records, b *batch) error {
		left := Left{Needed: map[string]bool{}, Former: map[string]string{}}
		for name, lans := range r.needs {
			if !match(name) {
				continue
			}
			if lans[short(lan)] {
				b.DeleteChain(table, needed(name, lan))
				delete(lans, short(lan))
			}
			if len(lans) > 0 {
				left.Needed[name] = true
			} else {
				delete(r.needs, name)
			}
		}
		for name, value := range r.was {
			if match(name) && !left.Needed[name] {
				left.Former[name] = value
			}
		}
		if err := restore(left); err != nil {
			return err
		}
		for name, value := range left.Former {
			b.DeleteChain(table, had(name, value))
			delete(r.was, name)
		}
		if r.found && len(r.needs)+len(r.was) == 0 {
			*b = batch{}
			b.DeleteTable(table)
		}
		return nil
	})
}

func short(lan string) string        { return strings.TrimPrefix(guard.Table(lan), guard.Prefix) }
func needed(name, lan string) string { return "need/" + name + "/" + short(lan) }
func had(name, value string) string  { return "was/" + name + "/" + value }
func (r *records) add(chain string) {
	parts := strings.Split(chain, "/")
	switch {
	case len(parts) == 3 && parts[0] == "need":
		if r.needs[parts[1]] == nil {
			r.needs[parts[1]] = map[string]bool{}
		}
		r.needs[parts[1]][parts[2]] = true
	case len(parts) == 3 && parts[0] == "was":
		r.was[parts[1]] = parts[2]
	}
}

// records are those of all gateways.
type records struct {
	found bool                       // the table is there
	needs map[string]map[string]bool // LANs, as short has them, by settings
	was   map[string]string
}

// batch is the records' change.
type batch = nftables.Batch

// change has how look at the records and say how they are to change, while no other gateway does so. On a kernel
// without nftables there are none.
func change(how func(*records, *batch) error) error {
	defer lock()()
	c, err := nftables.Dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return how(&records{}, &batch{})
	}
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := read(c)
	if err != nil {
		return err
	}
	var b batch
	if err := how(r, &b); err != nil || b.Empty() {
		return err
	}
	var all nftables.Batch
	all.AddTable(table)
	all.Append(&b)
	if err := c.Commit(&all); err != nil {
		return fmt.Errorf("recording which gateways need the kernel's settings: %w", err)
	}
	return nil
}

// read reads the records.
func read(c *nftables.Conn) (*records, error) {
	r := &records{needs: map[string]map[string]bool{}, was: map[string]string{}}
	var err error
	if r.found, err = nftables.TableExists(table); err != nil || !r.found {
		return r, err
	}
	chains, err := c.Dump(unix.NFT_MSG_GETCHAIN, table.Family, nil)
	if err != nil {
		return nil, fmt.Errorf("reading which gateways need the kernel's settings: %w", err)
	}
	for _, m := range chains {
		if len(m.Data) < 4 {
			continue
		}
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return nil, err
		}
		of, name := "", ""
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_CHAIN_TABLE:
				of = d.String()
			case unix.NFTA_CHAIN_NAME:
				name = d.String()
			}
		}
		if of == table.Name {
			r.add(name)
		}
	}
	return r, nil
}

// lockWait is how long to wait for another gateway that changes settings.
const lockWait = 2 * time.Second

// lock keeps other gateways of the namespace from changing settings until unlock is called, or the process ends. Where
// that does not work it goes on: then two that end at the same moment may leave a setting as it is.
func lock() (unlock func()) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return func() {}
	}
	for end := time.Now().Add(lockWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			break
		}
	}
	return func() { f.Close() }
}
