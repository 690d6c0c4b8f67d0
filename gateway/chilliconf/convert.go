package chilliconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/near"
)

// Result is a configuration of gatewayd.
type Result struct {
	TOML    string   // of gatewayd.toml
	Secrets []Secret // files beside it
	Notes   []Note   // what has no counterpart, in the files' order
}

// Secret is a file that nobody but its owner may read.
type Secret struct{ Name, Text string }

// converter turns options into tables of TOML.
type converter struct {
	path    string // of the first file
	options []option
	used    map[string]bool
	tables  map[string][]string // lines
	Result
}

// order is that of the tables.
var order = []string{"lan", "wan", "dhcp", "dns", "nat", "garden", "portal", "uam", "auth", "devices", "radius",
	"radius.primary", "radius.secondary", "limits"}

// Convert reads a configuration of CoovaChilli and those that it includes. wan is the interface towards the Internet,
// "" if only the file can say it. An error means that the file cannot be read; mistakes in it are notes.
func Convert(path, wan string) (Result, error) {
	r := &reader{shell: map[string]int{}}
	if err := r.file(path, option{}); err != nil {
		return Result{}, err
	}
	r.finish()
	c := &converter{path: path, used: map[string]bool{}, tables: map[string][]string{}, Result: Result{Notes: r.notes}}
	for _, o := range r.options {
		if o.name == "" {
			var known bool
			if o.name, known = variables[o.as]; !known {
				if strings.HasPrefix(o.as, "HS_") {
					c.note(o, "is unknown")
				}
				continue // or a variable of the file's own
			}
			if strings.EqualFold(o.value, "off") || o.as == "HS_MACAUTHMODE" && o.value != "local" {
				continue
			}
		}
		c.options = append(c.options, o)
	}
	c.network(wan)
	c.services()
	c.garden()
	c.portal()
	c.radius()
	c.limits()
	c.others()
	c.write()
	return c.Result, nil
}

func (c *converter) note(o option, format string, args ...any) {
	c.Notes = append(c.Notes, Note{o.file, o.line, o.as, fmt.Sprintf(format, args...)})
}

// get returns the last value of an option, as CoovaChilli takes it. ok is false if there is none, or an empty one.
func (c *converter) get(name string) (o option, ok bool) {
	c.used[name] = true
	for _, one := range c.options {
		if one.name == name && one.value != "" {
			o, ok = one, true
		}
	}
	return o, ok
}

// flag reports whether an option that has no value is there.
func (c *converter) flag(name string) bool {
	c.used[name] = true
	return slices.ContainsFunc(c.options, func(o option) bool { return o.name == name })
}

// list returns all words of an option, which may stand in several lines.
func (c *converter) list(name string) (all []option) {
	c.used[name] = true
	for _, o := range c.options {
		if o.name != name {
			continue
		}
		for word := range strings.FieldsFuncSeq(o.value, func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
			one := o
			one.value = word
			all = append(all, one)
		}
	}
	return all
}

func (c *converter) set(table, key string, value any) {
	text := fmt.Sprint(value)
	switch v := value.(type) {
	case string:
		text = quote(v)
	case []string:
		var parts []string
		for _, s := range v {
			parts = append(parts, quote(s))
		}
		text = "[" + strings.Join(parts, ", ") + "]"
	}
	c.tables[table] = append(c.tables[table], key+" = "+text)
}

// quote is a basic string of TOML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// secret has a secret in a file of its own.
func (c *converter) secret(table, key, name, value string) {
	c.set(table, key, name)
	c.Secrets = append(c.Secrets, Secret{name, value + "\n"})
}

// network reads the interfaces and the network. What is missing gets CoovaChilli's default, with a note.
func (c *converter) network(wan string) {
	lan, ok := c.get("dhcpif")
	if !ok {
		lan.value = "eth1"
		c.note(option{file: c.path, as: "dhcpif"}, `is missing: set lan.interface, which is "eth1" now`)
	}
	c.set("lan", "interface", lan.value)
	prefix, where := c.prefix()
	own := prefix.Masked().Addr().Next()
	if o, ok := c.get("uamlisten"); ok {
		if a, err := netip.ParseAddr(o.value); err == nil && prefix.Contains(a) {
			own = a
		} else {
			c.note(o, "is no address of %s: lan.address is %s", prefix, own)
		}
	}
	c.set("lan", "address", netip.PrefixFrom(own, prefix.Bits()).String())
	if where.name != "" && (prefix.Bits() < 14 || prefix.Bits() > 29) {
		c.note(where, "the LAN's length must be 14 to 29: choose another lan.address")
	}
	for _, name := range []string{"wanif", "routeif"} {
		if o, ok := c.get(name); ok && wan == "" {
			wan = o.value
		}
	}
	if wan == "" {
		wan = "eth0"
		c.note(option{file: c.path, as: "HS_WANIF"}, `is missing: set wan.interface, which is "eth0" now (--wan says it)`)
	}
	c.set("wan", "interface", wan)
	c.set("nat", "masquerade", true) // as CoovaChilli's script up.sh does
}

// prefix is the clients' network.
func (c *converter) prefix() (netip.Prefix, option) {
	normal := netip.MustParsePrefix("192.168.182.0/24")
	network, hasNetwork := c.get("network")
	mask, _ := c.get("netmask")
	o, ok := c.get("net")
	if !ok && !hasNetwork {
		return normal, option{}
	}
	text := o.value
	if !ok {
		o, text = network, network.value+"/"+mask.value
	}
	p, fits := parseNet(text)
	if !fits {
		c.note(o, "%q is no IPv4 network with its netmask: lan.address is of CoovaChilli's default, %s", text, normal)
		return normal, option{}
	}
	return p, o
}

// parseNet reads "10.1.0.0/24" and "10.1.0.0/255.255.255.0".
func parseNet(text string) (p netip.Prefix, ok bool) {
	first, length, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(first)
	if err != nil || !a.Is4() {
		return p, false
	}
	bits, err := strconv.Atoi(length)
	if mask, bad := netip.ParseAddr(length); bad == nil && mask.Is4() {
		b := mask.As4()
		n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		bits, err = 0, nil
		for ; n&(1<<31) != 0; n <<= 1 {
			bits++
		}
		if n != 0 {
			return p, false
		}
	}
	p, bad := a.Prefix(bits)
	return p, err == nil && bad == nil
}

// seconds reads a number of seconds within bounds. ok is false if there is none, or none that fits, which it notes.
func (c *converter) seconds(name string, lo, hi time.Duration) (text string, ok bool) {
	o, ok := c.get(name)
	n, err := strconv.ParseInt(o.value, 10, 64)
	if !ok || err == nil && n == 0 {
		return "", false
	}
	if err != nil || n < int64(lo/time.Second) || n > int64(hi/time.Second) {
		c.note(o, "%q is not %s to %s: left out", o.value, lo, hi)
		return "", false
	}
	text = (time.Duration(n) * time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text, true
}

// services reads DHCP and DNS.
func (c *converter) services() {
	if text, ok := c.seconds("lease", time.Minute, 720*time.Hour); ok {
		c.set("dhcp", "lease", text)
	}
	if o, ok := c.get("domain"); ok && o.value != "lan" {
		c.set("dhcp", "domain", o.value)
	}
	if o, ok := c.get("mtu"); ok {
		if n, err := strconv.Atoi(o.value); err == nil && n >= 576 && n <= 9000 {
			c.set("dhcp", "mtu", n)
		} else {
			c.note(o, "%q is not 576 to 9000: left out", o.value)
		}
	}
	for _, name := range []string{"dynip", "dhcpstart", "dhcpend"} {
		if o, ok := c.get(name); ok && o.value != "0" {
			c.note(o, `set dhcp.pools = ["FIRST-LAST"]: without it all of the LAN is leased`)
		}
	}
	var resolvers []string
	for _, name := range []string{"dns1", "dns2"} {
		if o, ok := c.get(name); ok {
			if a, err := netip.ParseAddr(o.value); err != nil || !a.Is4() {
				c.note(o, "%q is no IPv4 address: left out", o.value)
			} else {
				resolvers = append(resolvers, o.value)
			}
		}
	}
	if len(resolvers) == 0 {
		resolvers = []string{"192.0.2.53"}
		c.note(option{file: c.path, as: "dns1"}, "is missing: set dns.upstreams, which is an example now, 192.0.2.53")
	}
	c.set("dns", "upstreams", resolvers)
}

// limits reads the defaults of sessions.
func (c *converter) limits() {
	if text, ok := c.seconds("defsessiontimeout", time.Minute, 8760*time.Hour); ok {
		c.set("limits", "session_timeout", text)
	}
	if text, ok := c.seconds("defidletimeout", time.Minute, 8760*time.Hour); ok {
		c.set("limits", "idle_timeout", text)
	} else {
		c.set("limits", "idle_timeout", "none")
	}
	for name, key := range map[string]string{"defbandwidthmaxdown": "down_rate", "defbandwidthmaxup": "up_rate"} {
		o, ok := c.get(name)
		n, err := strconv.ParseUint(o.value, 10, 63)
		switch {
		case !ok || err == nil && n == 0:
		case err != nil || n < 1000:
			c.note(o, "%q is no rate of 1000 bit/s or more: left out", o.value)
		default:
			c.set("limits", key, strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)+"kbit/s")
		}
	}
	slices.Sort(c.tables["limits"])
}

// others notes each option that has not been used.
func (c *converter) others() {
	known := make([]string, 0, len(instead)+len(needless))
	for name := range instead {
		known = append(known, name)
	}
	for name := range needless {
		known = append(known, name)
	}
	for name := range c.used {
		known = append(known, name)
	}
	slices.Sort(known)
	for _, o := range c.options {
		text, listed := instead[o.name]
		switch {
		case needless[o.name] || c.used[o.name]:
		case listed:
			c.note(o, "%s", text)
		default:
			c.note(o, "is unknown%s", near.Suggestion(o.name, known))
		}
	}
	slices.SortStableFunc(c.Notes, func(a, b Note) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
}

// write makes the text.
func (c *converter) write() {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by gatewayd import-chilli of %q.\n", c.path)
	for _, table := range order {
		if lines := c.tables[table]; len(lines) > 0 {
			fmt.Fprintf(&b, "\n[%s]\n%s\n", table, strings.Join(lines, "\n"))
		}
	}
	c.TOML = b.String()
}
