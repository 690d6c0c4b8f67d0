package gateway

import (
	"net/netip"
	"os"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestStateFoldersInUse: a second daemon that has a folder of a running one, because its configuration is a copy, ends
// before it touches anything, also on interfaces of its own.
func TestStateFoldersInUse(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	sh(t, "ip link add lan9 type veth peer name p9; ip link add wan9 type veth peer name q9; ip addr add 10.9.0.1/24 "+
		"dev lan9; for l in lan9 p9 wan9 q9; do ip link set $l up; done")
	t.Cleanup(func() { sh(t, "ip link del lan9; ip link del wan9") })
	for name, own := range map[string]func(state, pins *string){
		"state_dir": func(_, pins *string) { *pins = "/sys/fs/bpf/other" },
		"pin_dir":   func(state, _ *string) { *state = t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := *d.cfg
			cfg.LAN.Interface, cfg.WAN.Interface, cfg.LAN.Address, cfg.RunDir = "lan9", "wan9",
				netip.MustParsePrefix("10.9.0.1/24"), t.TempDir()
			own(&cfg.StateDir, &cfg.Datapath.PinDir)
			refuses(t, cfg, "another gateway has the folder")
			expectFindings(t, cfg, Refusal, "another gateway has the folder")
			if _, err := os.Stat("/sys/fs/bpf/other"); err == nil {
				t.Error("it has pinned something")
			}
		})
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	s, err := c.Status(t.Context())
	must(t, err)
	for label, n := range s.Repairs {
		if n != 0 {
			t.Errorf("the first gateway had to repair: %s %d", label, n)
		}
	}
	must(t, d.stop())
}
