package config

import (
	"cmp"
	"fmt"
	"strings"
)

const bootTable = "dhcp.boot"

// WhereBoot names the line of a key of [[dhcp.boot]], by its place in DHCP.Boot.
func (c *Config) WhereBoot(i int, key string) string { return c.whereRow(bootTable, i, key) }

// checkBoot checks each [[dhcp.boot]]: it has a file, and some client gets it.
func (k *checker) checkBoot() {
	for i := range max(len(k.DHCP.Boot), k.rows[bootTable]) {
		line := cmp.Or(k.lines[keyInRow(bootTable, i, "file")], k.lines[fmt.Sprintf("%s#%d", bootTable, i+1)])
		if k.lines[keyInRow(bootTable, i, "file")] == 0 {
			k.reportAt(line, bootTable+".file", "missing: what the client loads, such as \"pxelinux.0\" or a URL")
		}
		if i >= len(k.DHCP.Boot) {
			continue
		}
		b := k.DHCP.Boot[i]
		for j, before := range k.DHCP.Boot[:i] {
			if strings.HasPrefix(b.VendorClass, before.VendorClass) && (before.UserClass == "" ||
				before.UserClass == b.UserClass) {
				k.reportAt(line, bootTable, "no client gets it: the table on line %d comes first and has all its clients. Put "+
					"the narrower one first", k.lines[fmt.Sprintf("%s#%d", bootTable, j+1)])
				break
			}
		}
	}
}
