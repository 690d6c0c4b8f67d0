package config

import "strings"

// checkLogin checks that the configuration of each login method is complete.
func (k *checker) checkLogin() {
	methods := "auth.methods"
	switch {
	case !k.Portal.Enabled && !k.PPPoE.Enabled && len(k.Auth.Methods) > 0:
		k.report(methods,
			"need the portal or PPPoE, where clients log in: portal.enabled is false, and pppoe.enabled is not true")
	case k.Portal.Enabled && len(k.Auth.Methods) == 0:
		k.report(methods, `missing: how clients log in, such as ["users"], or portal.enabled = false`)
	case k.Auth.Has(MethodVoucher) && !k.Portal.Enabled:
		k.report(methods, `"voucher" has no effect: codes are typed at the portal, and portal.enabled is false`)
	case k.Auth.Has(MethodClickThrough) && !k.Portal.Enabled && (k.Auth.Has(MethodRADIUS) || k.Auth.Has(MethodUsers)):
		// Alone, it is refused as what PPPoE clients cannot log in with.
		k.report(methods, `"click-through" has no effect: clients click at the portal, and portal.enabled is false`)
	}
	if !k.Auth.Has(MethodClickThrough) {
		k.refuseUnused(`"click-through" is not in auth.methods`, "portal.terms")
	}
	if k.Auth.Has(MethodUsers) && k.Users.File == "" {
		k.report("users.file", `missing: "users" is in auth.methods`)
	} else if !k.Auth.Has(MethodUsers) {
		k.refuseUnused(`"users" is not in auth.methods`, "users.file")
	}
	if k.UsesRADIUS() {
		if !k.IsSet("radius.primary.address") && k.Auth.Has(MethodRADIUS) {
			k.report("radius.primary.address", `missing: "radius" is in auth.methods`)
		}
		return
	}
	for _, key := range Keys() {
		if strings.HasPrefix(key, "radius.") {
			k.refuseUnused(`"radius" is not in auth.methods, and devices.radius is not true`, key)
		}
	}
}
