// Devices that come in without a login.

package config

import "time"

// Devices is how devices come in without a login.
type Devices struct {
	File          string        // of MAC addresses; empty: none
	RADIUS        bool          // servers are asked about MAC addresses
	UserName      string        // UserMAC or UserVLAN
	Format        string        // of the MAC address as User-Name, one of MACFormats
	Password      string        // sent to servers; empty: the User-Name
	PasswordFile  string        // the file Password was read from
	AskRandomised bool          // servers are asked about randomised addresses too
	AskAgain      time.Duration // how long an answer holds
	Remember      time.Duration // after a login; 0: devices are not remembered
	Consent       bool          // only those whose person wishes it
}

// On reports whether devices may come in without a login.
func (d Devices) On() bool { return d.File != "" || d.RADIUS || d.Remember > 0 }

// What RADIUS servers know a device by: its MAC address, or the VLANs that it is in where they are known.
const (
	UserMAC  = "mac"
	UserVLAN = "vlan"
)

// MACFormats are the forms of MAC addresses that RADIUS servers may know, each by an example.
var MACFormats = []string{
	"aabbccddeeff", "aa:bb:cc:dd:ee:ff", "aa-bb-cc-dd-ee-ff", "aabb.ccdd.eeff", "aabbcc-ddeeff",
	"AABBCCDDEEFF", "AA:BB:CC:DD:EE:FF", "AA-BB-CC-DD-EE-FF", "AABB.CCDD.EEFF", "AABBCC-DDEEFF",
}

// checkDevices checks the keys of devices that come in without a login.
func (k *checker) checkDevices() {
	d := k.Devices
	if !d.RADIUS {
		k.refuseUnused("devices.radius is not true", "devices.user_name",
			"devices.mac_format", "devices.password", "devices.password_file",
			"devices.ask_randomised")
	} else if !k.IsSet("radius.primary.address") && !k.Auth.Has(MethodRADIUS) {
		k.report("radius.primary.address", "missing: devices.radius is true")
	}
	if d.Password != "" && d.PasswordFile != "" {
		k.report("devices.password", "contradicts password_file: give one of them")
	}
	if !d.On() {
		k.refuseUnused("neither devices.file, devices.radius nor devices.remember is set", "devices.ask_again")
	}
	switch {
	case d.Remember == 0:
		k.refuseUnused("devices.remember is not set", "devices.consent")
	case !k.Portal.Enabled:
		k.report("devices.remember", noEffect+": devices are remembered after a login at the portal, and portal.enabled is "+
			"false")
	}
}
