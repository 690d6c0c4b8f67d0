// Checks of the keys of RADIUS.

package config

import "net/netip"

// What radius.nas_port_id can be.
const (
	PortInterface = "interface"
	PortVLAN      = "vlan"
)

// checkSecrets checks that the address of a request says which secret it is signed with.
func (k *checker) checkSecrets() {
	one, other := k.RADIUS.Primary, k.RADIUS.Secondary
	if !k.RADIUS.Dynamic.IsValid() || one.Secret == "" || other.Secret == "" || one.Secret == other.Secret {
		return
	}
	for _, a := range []netip.AddrPort{one.Address, one.AcctAddress} {
		for _, b := range []netip.AddrPort{other.Address, other.AcctAddress} {
			if a.IsValid() && a.Addr().Unmap() == b.Addr().Unmap() {
				k.report("radius.dynamic",
					"both servers have the address %s and different secrets, so that its requests cannot be told apart: give both "+
						"the same secret", a.Addr())
				return
			}
		}
	}
}

// checkServer checks a RADIUS server's keys together.
func (k *checker) checkServer(table string, s RADIUSServer) {
	used := k.IsSet(table+".address") && k.UsesRADIUS()
	switch {
	case !k.UsesRADIUS(): // reported for each key already
	case !used && table != "radius.primary" && (s.Secret != "" || s.SecretFile != "" || s.AcctAddress.IsValid()):
		k.report(table+".address", "missing: other keys of the server are set")
	case used && s.Secret == "" && s.SecretFile == "":
		k.report(table+".secret", "missing: give it, or secret_file")
	case s.Secret != "" && s.SecretFile != "":
		k.report(table+".secret", "contradicts secret_file: give one of them")
	}
	if used && table != "radius.primary" && s.Address == k.RADIUS.Primary.Address {
		k.report(table+".address", "%s is the primary server too: a second one must be another", s.Address)
	}
	if used && s.Address.Port() == 65535 && !s.AcctAddress.IsValid() {
		k.report(table+".acct_address", "missing: there is no port after 65535")
	}
	if !k.RADIUS.Accounting {
		k.refuseUnused("radius.accounting is false", table+".acct_address")
	}
}
