package chilliconf

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// radius reads the servers.
func (c *converter) radius() {
	c.set("auth", "methods", []string{"radius"})
	secret, ok := c.get("radiussecret")
	if !ok {
		secret.value = "testing123"
		c.note(option{file: c.path, as: "radiussecret"},
			"is missing: CoovaChilli's default is in radius.secret, choose another")
	}
	auth, acct := c.port("radiusauthport", 1812), c.port("radiusacctport", 1813)
	first := ""
	for i, name := range []string{"radiusserver1", "radiusserver2"} {
		o, ok := c.get(name)
		address := map[bool]string{true: "127.0.0.1", false: o.value}[o.value == "localhost"]
		if a, err := netip.ParseAddr(address); ok && (err != nil || !a.IsValid()) {
			c.note(o, "%q is a name: give the server's address", o.value)
			ok = false
		}
		if i == 0 && !ok {
			address, ok = "127.0.0.1", true
			c.note(option{file: c.path, as: name}, "has no address: radius.primary.address is 127.0.0.1 now")
		}
		if !ok || address == first {
			continue
		}
		table := []string{"radius.primary", "radius.secondary"}[i]
		c.set(table, "address", netip.AddrPortFrom(netip.MustParseAddr(address), auth).String())
		c.set(table, "acct_address", netip.AddrPortFrom(netip.MustParseAddr(address), acct).String())
		if i == 0 {
			c.secret(table, "secret_file", "radius.secret", secret.value)
			first = address
		} else {
			c.set(table, "secret_file", "radius.secret")
		}
	}
	c.requests()
	c.devices()
}

// requests reads what servers are told.
func (c *converter) requests() {
	if o, ok := c.get("radiusnasid"); ok {
		c.set("radius", "nas_identifier", o.value)
	} else {
		c.set("radius", "nas_identifier", "nas01")
	}
	if o, ok := c.get("nasmac"); ok {
		c.set("radius", "called_station_id", o.value)
	}
	if o, ok := c.get("nasip"); ok {
		if a, err := netip.ParseAddr(o.value); err == nil && a.Is4() {
			c.set("radius", "nas_address", o.value)
		} else {
			c.note(o, "%q is no IPv4 address: left out, set radius.nas_address", o.value)
		}
	}
	if o, ok := c.get("radiusnasporttype"); ok && o.value == "15" {
		c.set("radius", "nas_port_type", "ethernet")
	} else if ok && o.value != "19" {
		c.note(o, "radius.nas_port_type is wireless (19) or ethernet (15)")
	}
	// What a client receives is CoovaChilli's input unless it is told to swap.
	c.set("radius", "swap_octets", !c.flag("swapoctets"))
	if text, ok := c.seconds("radiustimeout", time.Second, time.Minute); ok {
		c.set("radius", "timeout", text)
	}
	if o, ok := c.get("radiusretry"); ok {
		if n, err := strconv.Atoi(o.value); err == nil && n >= 0 && n <= 10 {
			c.set("radius", "retries", n)
		} else {
			c.note(o, "%q is not 0 to 10: left out, set radius.retries", o.value)
		}
	}
	if text, ok := c.seconds("definteriminterval", time.Minute, 24*time.Hour); ok {
		c.set("radius", "interim", text)
	}
	if o, ok := c.get("coaport"); ok && o.value != "0" {
		c.note(o, `set radius.dynamic = "ADDRESS:%s", the gateway's address towards the servers`, o.value)
	}
}

func (c *converter) port(name string, normal uint16) uint16 {
	if o, ok := c.get(name); ok {
		if n, err := strconv.ParseUint(o.value, 10, 16); err == nil && n > 0 {
			return uint16(n)
		}
		c.note(o, "%q is no port: %d is set", o.value, normal)
	}
	return normal
}

// devices reads what comes in by its MAC address. CoovaChilli asks servers about macallowed too, as about all devices
// with macauth, unless macallowlocal says that the list is enough.
func (c *converter) devices() {
	all, local := c.flag("macauth"), c.flag("macallowlocal")
	macs := c.list("macallowed")
	password, hasPassword := c.get("macpasswd")
	asks := all || len(macs) > 0 && !local
	if asks {
		c.set("devices", "radius", true)
		c.set("devices", "mac_format", "AA-BB-CC-DD-EE-FF") // as CoovaChilli has it
		if hasPassword {
			c.secret("devices", "password_file", "devices.secret", password.value)
		}
	} else if hasPassword {
		c.note(password, "left out: no server is asked about devices")
	}
	if asks && !all {
		c.note(macs[0], "servers decide about these devices (no macallowlocal): devices.radius asks about all devices, so "+
			"the servers must reject others")
	} else if len(macs) > 0 && !local {
		c.note(macs[0], "left out: servers decide about these devices too (no macallowlocal), as devices.radius has it")
	}
	if !local {
		return
	}
	var lines []string
	for _, o := range macs {
		digits := strings.NewReplacer(":", "", "-", "").Replace(o.value)
		if _, err := strconv.ParseUint(digits, 16, 64); err != nil || len(digits) != 12 {
			c.note(o, "%q is no MAC address: left out", o.value)
			continue
		}
		var parts []string
		for i := 0; i < 12; i += 2 {
			parts = append(parts, strings.ToLower(digits[i:i+2]))
		}
		lines = append(lines, strings.Join(parts, ":"))
	}
	if len(lines) > 0 {
		c.set("devices", "file", "devices")
		c.Secrets = append(c.Secrets, Secret{"devices", strings.Join(lines, "\n") + "\n"})
	}
}
