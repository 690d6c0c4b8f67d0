package connlimit

import "github.com/gateweigh/gateweigh/gateway/netfilter/nftables"

// LeftInKernel reports whether the table of a LAN exists.
func LeftInKernel(lan string) bool {
	found, err := nftables.TableExists(tableOf(Table(lan)))
	return err == nil && found
}

// Remove removes the table of a LAN, as nftables.RemoveTable does.
func Remove(lan string) error {
	name := Table(lan)
	return nftables.RemoveTable(tableOf(name), "the limits of connections (table inet "+name+")")
}
