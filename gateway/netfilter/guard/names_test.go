package guard

import "testing"

// TestTablesOfTheirOwn: the guards of two interfaces have tables of different names, however alike the interfaces'
// names are. Otherwise one guard would replace the other.
func TestTablesOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, lan := range []string{
		"br-lan", "br_lan", "br.lan", "br_2dlan", "brlan", "eth0.1", "eth0_1", "eth01", "lan0", "LAN0", "lan:0", "lä"} {
		table := Table(lan)
		if other, taken := seen[table]; taken {
			t.Errorf("%s and %s have the table %s", other, lan, table)
		}
		if seen[table] = lan; !IsOwnTable(table) {
			t.Errorf("%s is no guard's", table)
		}
	}
}
