package tun

import (
	"errors"
	"fmt"
	"os"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Check reports what keeps Open from working on this machine, as far as that can be known without
// making a device.
func Check(cfg Config) error {
	cfg.complete()
	_, err := ethernet(cfg.LAN, cfg.Address)
	return errors.Join(err, tunFile(), ours(cfg.Device, cfg.LAN))
}

func tunFile() error {
	if _, err := os.Stat(tunPath); err != nil {
		return fmt.Errorf("%w: %s is missing (modprobe tun)", datapath.ErrNotSupported, tunPath)
	}
	return nil
}
