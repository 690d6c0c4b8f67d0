package nfqueue

import (
	"fmt"
	"net"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Check reports why Open would fail for a LAN on this machine, as far as that can be known without making rules and
// queues.
func Check(lan string) error {
	dev, err := net.InterfaceByName(lan)
	if err != nil {
		return fmt.Errorf("interface %s: %w", lan, err)
	}
	if len(dev.HardwareAddr) != macSize {
		return fmt.Errorf("%w: %s is no Ethernet interface", datapath.ErrNotSupported, lan)
	}
	return nil
}
