// The setting of connection tracking that the cache of flows needs.

package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// liberal switches connection tracking's check of TCP windows off (nf_conntrack_tcp_be_liberal). Where flows are
// cached, connection tracking sees few of a connection's packets and would take them for invalid. The setting is of a
// network namespace, which several gateways may share: each notes that it needs it, and the last one restores it.
type liberal struct {
	noteFolder  string // a folder on the bpffs: a gateway switched it on
	notePattern string // a pattern of the notes of all gateways of this namespace
}

const liberalSetting = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"

func (d *Datapath) liberal() liberal {
	name := "liberal"
	var space syscall.Stat_t
	if syscall.Stat("/proc/thread-self/ns/net", &space) == nil {
		name = fmt.Sprintf("liberal-%d", space.Ino)
	}
	return liberal{filepath.Join(d.cfg.PinDir, name), filepath.Join(filepath.Dir(d.cfg.PinDir), "*", name)}
}

// strict reports whether the namespace's connection tracking judges windows.
func strict() (bool, error) {
	var current [1]byte
	fd, err := unix.Open(liberalSetting, unix.O_RDONLY|unix.O_CLOEXEC, 0) // os.ReadFile wakes threads: it polls such files
	if err == nil {
		_, err = unix.Read(fd, current[:])
		unix.Close(fd)
	}
	if err != nil {
		return false, fmt.Errorf("reading whether connection tracking is liberal (%s): %w", liberalSetting, err)
	}
	return current[0] == '0', nil
}

// shared reports whether another gateway of this namespace has a note.
func (l liberal) shared() bool {
	notes, _ := filepath.Glob(l.notePattern) // the pattern is well-formed but for a strange folder, which has no notes
	return slices.ContainsFunc(notes, func(n string) bool { return n != l.noteFolder })
}

// switchOn makes connection tracking liberal where it is strict, and reports whether it was strict. Before that it
// writes this gateway's note, also where another gateway has made it liberal.
func (l liberal) switchOn() (before bool, err error) {
	strict, err := strict()
	if err != nil || !strict && !l.shared() {
		return false, err
	}
	if err := os.Mkdir(l.noteFolder, 0o700); err != nil && !errors.Is(err, syscall.EEXIST) {
		return false, fmt.Errorf("noting that connection tracking was strict: %w", err)
	}
	if !strict {
		return false, nil
	}
	if err := os.WriteFile(liberalSetting, []byte("1"), 0); err != nil {
		return false, fmt.Errorf("making connection tracking liberal (net.netfilter.nf_conntrack_tcp_be_liberal): %w", err)
	}
	return true, nil
}

// switchOff makes connection tracking strict again, if this gateway has a note and no other gateway has one.
func (l liberal) switchOff() error {
	if _, err := os.Stat(l.noteFolder); err != nil || l.shared() {
		return nil
	}
	if err := os.WriteFile(liberalSetting, []byte("0"), 0); err != nil {
		return fmt.Errorf("making connection tracking strict again (net.netfilter.nf_conntrack_tcp_be_liberal): %w", err)
	}
	return nil
}

// makeLiberal makes connection tracking liberal where it is strict, and reports that. The note of that is kept as pins
// are.
func (d *Datapath) makeLiberal() (before bool, err error) {
	l := d.liberal()
	if before, err = l.switchOn(); err != nil {
		return before, err
	}
	if _, e := os.Stat(l.noteFolder); e == nil {
		name := filepath.Base(l.noteFolder)
		d.liberalNote.Store(&name)
	}
	return before, nil
}

// keepLiberal makes connection tracking liberal again where somebody made it strict under cached flows, and ends
// the cache while that fails; where it failed, the cache begins once it succeeds. It is called every two seconds.
func (d *Datapath) keepLiberal() {
	d.mu.Lock()
	caching := d.flows.loaded.Load() && (d.caching() || d.caching6())
	wanted := (d.stackReason != "" || d.stackReason6 != "") && d.strict.Load()
	d.mu.Unlock()
	if !caching && !wanted {
		return
	}
	strict, err := strict()
	if err == nil && strict {
		if d.isDetached() { // detach made it strict
			return
		}
		if _, err = d.makeLiberal(); err == nil && caching {
			d.cfg.Log.Warn("connection tracking was made strict under cached flows: made it liberal again", "setting",
				"net.netfilter.nf_conntrack_tcp_be_liberal")
		}
	}
	switch {
	case err != nil && caching:
		d.choosing.Lock()
		d.cache(err.Error(), err.Error())
		d.choosing.Unlock()
		d.strict.Store(true)
	case err == nil && !caching:
		d.strict.Store(false)
		d.choose()
	}
}
