// Tests of the pins in the bpffs by which a daemon finds its predecessor's programs and maps. newNetwork makes a LAN
// with alice and bob and a WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestRemovedPinsRestored: the daemon makes a removed pin again, also if the folder was last changed long before, and
// if pin_dir is a link to the folder.
func TestRemovedPinsRestored(t *testing.T) {
	for name, linked := range map[string]bool{"folder": false, "link": true} {
		t.Run(name, func(t *testing.T) {
			d := newNetwork(t).open(t, func(c *Config) {
				if linked {
					c.PinDir = linkTo(t, c.PinDir)
				}
			})
			d.stop() // the test itself checks the pins
			pin := filepath.Join(d.cfg.PinDir, "hops")
			for manner, remove := range map[string]func(){
				"removed":  func() { must(t, os.Remove(pin)) },
				"replaced": func() { must(t, os.Remove(pin)); must(t, os.Mkdir(pin, 0o700)) },
				"removed, with the folder's time put back": func() {
					before, err := os.Stat(d.cfg.PinDir)
					must(t, err)
					must(t, os.Remove(pin))
					must(t, os.Chtimes(d.cfg.PinDir, before.ModTime(), before.ModTime()))
				},
			} {
				netnstest.Await(t, "the look that finds the folder as it was", func() error {
					if must(t, d.keepPins()); d.pinned == (unix.Timespec{}) {
						return errors.New("it has just changed")
					}
					return nil
				})
				remove()
				must(t, d.keepPins())
				if current, err := os.Stat(pin); err != nil || current.IsDir() {
					t.Errorf("%s: %v", manner, err)
				}
			}
		})
	}
}

// TestPinDirIsNoFolder: if the folder of pins is replaced by something that can hold no pin, that is an error.
func TestPinDirIsNoFolder(t *testing.T) {
	d := newNetwork(t).open(t, func(*Config) {})
	d.stop()
	must(t, os.RemoveAll(d.cfg.PinDir))
	must(t, os.Symlink(filepath.Base(d.cfg.PinDir), d.cfg.PinDir)) // to itself
	if err := d.keepPins(); err == nil || !strings.Contains(err.Error(), d.cfg.PinDir) {
		t.Errorf("%v, want what is wrong with %s", err, d.cfg.PinDir)
	}
	must(t, os.Remove(d.cfg.PinDir))
	must(t, d.keepPins())
	if _, err := os.Stat(filepath.Join(d.cfg.PinDir, "clients")); err != nil {
		t.Error(err)
	}
}

// linkTo makes a link to a folder of pins, and returns its path.
func linkTo(t *testing.T, dir string) string {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	l := dir + "-link"
	must(t, os.Symlink(dir, l))
	must(t, unix.Lutimes(l, make([]unix.Timeval, 2))) // made long ago
	t.Cleanup(func() { os.RemoveAll(dir); os.RemoveAll(l) })
	return l
}
