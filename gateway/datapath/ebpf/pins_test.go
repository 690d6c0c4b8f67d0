package ebpf

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPinsAgain: a pin that is removed long after the folder was last changed is made again, also where pin_dir is a link to
// the folder.
func TestPinsAgain(t *testing.T) {
	for name, linked := range map[string]bool{"folder": false, "link": true} {
		t.Run(name, func(t *testing.T) {
			d := newNetwork(t).open(t, func(c *Config) {
				if linked {
					c.PinDir = linkTo(t, c.PinDir)
				}
			})
			d.stop() // the daemon's own looks
			pin := filepath.Join(d.cfg.PinDir, "hops")
			for range 2 {
				long := time.Now().Add(-time.Hour)
				must(t, os.Chtimes(d.cfg.PinDir, long, long))
				must(t, d.keepPins())
				must(t, os.Remove(pin))
				must(t, d.keepPins())
				if _, err := os.Stat(pin); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// linkTo makes a folder of pins with a link to it.
func linkTo(t *testing.T, dir string) string {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	l := dir + "-link"
	must(t, os.Symlink(dir, l))
	must(t, unix.Lutimes(l, make([]unix.Timeval, 2))) // made long ago
	t.Cleanup(func() { os.RemoveAll(dir); os.RemoveAll(l) })
	return l
}
