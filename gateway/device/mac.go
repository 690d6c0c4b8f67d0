// Package device lets devices in without a login: by a file of MAC addresses, by RADIUS servers that are asked about
// the address (MAC authentication), and because a person logged in with the device before.
//
//	client appears ──▶ Desk ── cached? ──▶ sources in order: remembered, file, RADIUS
//	                    │ ▲                       │
//	                    │ └── again after a time ─┤ yes, no, nobody could answer
//	                    └── Admit ◀───────────────┘ yes
//
// Nobody waits for it: until the answer is there the device sees the portal. A MAC address is no secret: anybody may
// copy it.
package device

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Format writes a MAC address in a form of config.MACFormats.
func Format(mac datapath.MAC, format string) string {
	digits, at := hex.EncodeToString(mac[:]), 0
	if strings.HasPrefix(format, "A") {
		digits = strings.ToUpper(digits)
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(separators, r) {
			return r
		}
		at++
		return rune(digits[at-1])
	}, format)
}

// separators may stand between the digits of a MAC address.
const separators = ":-."

// ParseMAC reads a device's MAC address in any form of config.MACFormats, also of mixed case.
func ParseMAC(text string) (mac datapath.MAC, err error) {
	known := slices.ContainsFunc(config.MACFormats, func(f string) bool { return shape(f) == shape(text) })
	b, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "", ".", "").Replace(text))
	switch {
	case !known || err != nil || len(b) != len(mac):
		return mac, fmt.Errorf("must be a MAC address such as 00:00:5e:00:53:01, not %.40q", text)
	case b[0]&1 != 0:
		return mac, fmt.Errorf("%s is a multicast address, which no device has", text)
	}
	if mac = datapath.MAC(b); mac == (datapath.MAC{}) {
		return mac, fmt.Errorf("%s is no device's address", text)
	}
	return mac, nil
}

// Randomised reports whether a MAC address was made by its device instead of its maker (IEEE 802, 8.4: locally
// administered), as phones do for each network.
func Randomised(mac datapath.MAC) bool { return mac[0]&2 != 0 }

// shape is a text with the same letter in place of all that separates nothing.
func shape(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(separators, r) {
			return r
		}
		return 'x'
	}, text)
}
