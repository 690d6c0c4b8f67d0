package tun

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// shut has the kernel drop every frame of the LAN ahead of its stack; packet
// sockets for all protocols have seen it by then. Requests for addresses go on to
// the DHCP server's socket, and no further: nobody but the gateway is their
// destination. Doing it twice is the same as once, without a gap.
func shut(lan string, gateway netip.Addr) error {
	name := tableName(lan)
	return nft(fmt.Sprintf(`table netdev %[1]s
delete table netdev %[1]s
table netdev %[1]s {
	chain lan {
		type filter hook ingress device "%[2]s" priority -500; policy drop;
		udp dport 67 ip daddr { 255.255.255.255, %[3]s } accept
	}
}
`, name, lan, gateway), "shutting "+lan+" off from the kernel's stack")
}

// unshut takes the rule out, if it is there.
func unshut(lan string) error {
	err := nft(fmt.Sprintf("table netdev %[1]s\ndelete table netdev %[1]s\n", tableName(lan)), "giving "+lan+" back to the kernel's stack")
	if errors.Is(err, datapath.ErrNotSupported) {
		return nil // without nft it never came
	}
	return err
}

// nft runs a script as one transaction.
func nft(script, doing string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: %w: nft is missing (package nftables)", doing, datapath.ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("%s: nft: %w: %s", doing, err, strings.TrimSpace(string(out)))
	}
	return nil
}
