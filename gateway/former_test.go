package gateway

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// TestNetworksNotedOnFullDisk: the list of networks that has not changed is not written again, so a daemon starts on a
// full disk. A list that has changed is an error that says where there is no room.
func TestNetworksNotedOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", 0, "size=8k"))
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	guests := &config.Config{Name: "guests"}
	guests.LAN.Interface, guests.LAN.Address = "lan0", netip.MustParsePrefix("10.1.0.1/24")
	must(t, remember(dir, []*config.Config{guests}))
	os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 8<<10), 0o600) // what fits
	if err := remember(dir, []*config.Config{guests}); err != nil {
		t.Errorf("the same networks: %v", err)
	}
	err := remember(dir, []*config.Config{guests, {Name: "staff"}})
	if err == nil || !strings.Contains(err.Error(), "is there room at state_dir?") {
		t.Errorf("another network: %v", err)
	}
	if text, err := os.ReadFile(formerFile(dir)); err != nil || !strings.Contains(string(text), `"guests"`) {
		t.Errorf("the former list is %q, %v", text, err)
	}
}
