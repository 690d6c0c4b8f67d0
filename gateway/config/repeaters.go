package config

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// clientMAC reads a client's MAC address.
func clientMAC(v any) (net.HardwareAddr, error) {
	s, _ := v.(string)
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf(`must be a MAC address such as "02:00:5e:10:00:01", not %s`, strict.Show(v))
	}
	if mac[0]&1 != 0 {
		return nil, errors.New("is a group address: no client has it")
	}
	return mac, nil
}

// Repeats reports whether a MAC address is a repeater's.
func (l LAN) Repeats(mac [6]byte) bool {
	return slices.ContainsFunc(l.Repeaters, func(r net.HardwareAddr) bool { return slices.Equal(r, mac[:]) })
}

// checkRepeaters refuses repeaters where clients are known by their MAC address alone.
func (k *checker) checkRepeaters() {
	if len(k.LAN.Repeaters) > 0 && k.LAN.Address6.IsValid() {
		k.report("lan.repeaters", "is not possible with lan.address6: by IPv6 all that is behind a repeater would be one "+
			"client. Leave one of them out, or give the repeaters a network without IPv6")
	}
}
