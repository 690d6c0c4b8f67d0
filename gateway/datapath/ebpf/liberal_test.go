// Tests of the setting that makes connection tracking accept TCP segments out of its window (liberal.go).

package ebpf

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestLiberalTrackingRestored: while flows are cached, connection tracking must accept TCP segments out of the windows
// that it has seen (liberal). If another program makes it strict, the daemon makes it liberal again.
func TestLiberalTrackingRestored(t *testing.T) {
	netnstest.NeedTCX(t)
	w := datapathtest.NewWorld(t, cachePath(t), datapathtest.Shape{})
	w.Router.Run(t, `nft 'table ip isp { chain out { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; }; }'`)
	becomes(t, w, "flow cache", "netfilter has rules")
	for range 2 {
		w.Router.Run(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0")
		netnstest.Await(t, "connection tracking to be liberal", func() error {
			if current := w.Router.Run(t, "sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal"); current != "1" {
				return fmt.Errorf("it is %s", current)
			}
			return nil
		})
	}
	becomes(t, w, "flow cache", "netfilter has rules")
	// That tracking was strict before is noted in a pin. Without the pin detach would leave tracking liberal.
	var space syscall.Stat_t
	w.Router.Do(func() { must(t, syscall.Stat("/proc/thread-self/ns/net", &space)) })
	notes := fmt.Sprintf("/sys/fs/bpf/*/liberal-%d", space.Ino)
	found, err := filepath.Glob(notes)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v: %q, %v", notes, found, err)
	}
	must(t, os.RemoveAll(filepath.Dir(found[0])))
	netnstest.Await(t, "the note that tracking was made liberal", func() error { _, err := os.Stat(found[0]); return err })
	must(t, w.Close())
	must(t, w.Detach())
	if current := w.Router.Run(t, "sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal"); current != "0" {
		t.Errorf("detached, and connection tracking is still liberal: %s", current)
	}
}

// TestLiberalForSeveral: the last gateway of a namespace makes connection tracking strict again, unless it was
// liberal before.
func TestLiberalForSeveral(t *testing.T) {
	for _, liberalBefore := range []bool{false, true} {
		t.Run(fmt.Sprintf("liberal before %v", liberalBefore), func(t *testing.T) {
			s := netnstest.NewSpace(t)
			var all []*Datapath
			for range 2 {
				dir, err := os.MkdirTemp("/sys/fs/bpf", "liberal")
				must(t, err)
				t.Cleanup(func() { os.RemoveAll(dir) })
				all = append(all, &Datapath{cfg: Config{PinDir: dir}})
			}
			is := func(want bool) {
				t.Helper()
				if got := s.Run(t, "sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal") != "0"; got != want {
					t.Errorf("liberal: %v", got)
				}
			}
			s.Do(findTracking)
			if liberalBefore {
				s.Run(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1")
			}
			s.Do(func() {
				for _, d := range all {
					if _, err := d.liberal().switchOn(); err != nil {
						t.Error(err)
					}
				}
			})
			for i, d := range all {
				is(true)
				s.Do(func() {
					if err := d.liberal().switchOff(); err != nil {
						t.Error(err)
					}
				})
				must(t, os.RemoveAll(d.cfg.PinDir))
				if i == len(all)-1 {
					is(liberalBefore)
				}
			}
		})
	}
}
