package tun

import (
	"errors"
	"fmt"
	"os"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Check reports why Open would fail on this machine, as far as that can be known without making a device.
func Check(cfg datapath.Setup) error {
	network, err := datapath.SingleNetwork(cfg.Networks)
	if err != nil {
		return err
	}
	_, err = ethernet(network)
	return errors.Join(err, tunFile(), checkOurs(cfg.Device, network.Interface))
}

func tunFile() error {
	if _, err := os.Stat(tunPath); err != nil {
		return fmt.Errorf("%w: %s is missing (modprobe tun)", datapath.ErrNotSupported, tunPath)
	}
	return nil
}
