// What Open needs of the machine, checked beforehand for "gatewayd check-config".

package ebpf

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Check reports why Open would fail on this machine, as far as that can be known without loading programs. The
// interfaces must exist.
func Check(cfg Config) error {
	errs := []error{kernel(), onBPFFS(cfg.PinDir)}
	for _, name := range []string{cfg.lan(), cfg.WAN} {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			err = fmt.Errorf("interface %s: %w", name, err)
		} else {
			err = ethernet(dev)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// kernel checks the version.
func kernel() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	var major, minor int
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 5 || major == 5 && minor < 15) {
		return fmt.Errorf(`%w: it is %s, and programs need 5.15 or newer: set datapath.kind to "tun" or "nfqueue"`,
			datapath.ErrNotSupported, release)
	}
	return nil
}

// ethernet checks that an interface has frames that the programs can read.
func ethernet(dev *net.Interface) error {
	if len(dev.HardwareAddr) != 6 {
		return fmt.Errorf(`%w: %s is no Ethernet interface; for such a WAN set datapath.kind to "tun" or "nfqueue"`,
			datapath.ErrNotSupported, dev.Name)
	}
	return nil
}
