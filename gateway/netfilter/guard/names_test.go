package guard

import "testing"

// TestTablesOfTheirOwn: no two interfaces share a table, or the guard of one would replace the other's.
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
