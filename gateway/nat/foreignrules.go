package nat

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// ForeignRules finds rules of other programs that disturb the translation. chains are the chains that translate source
// addresses. helpers are the rules, tables and sysctls that give connections a helper, a part of the kernel that opens
// further connections for protocols such as FTP.
func ForeignRules() (chains, helpers []string, err error) {
	conn, err := nftables.Dial()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	rules, err := conn.Rules()
	if errors.Is(err, unix.EINVAL) {
		return nil, nil, nil // a kernel without nftables
	}
	if err != nil {
		return nil, nil, err
	}
	add := func(list *[]string, text string) {
		if n := len(*list); n == 0 || (*list)[n-1] != text {
			*list = append(*list, text)
		}
	}
	families := map[nftables.Family]string{nftables.IPv4: "ip", nftables.Inet: "inet"}
	for _, r := range rules {
		family := families[r.Table.Family]
		if family == "" || IsOwnTable(uint8(r.Table.Family), r.Table.Name) {
			continue
		}
		text := fmt.Sprintf("%s %s %s", family, r.Table.Name, r.Chain)
		if r.Sources {
			add(&chains, text)
		}
		if r.Helper {
			add(&helpers, "a rule in "+text)
		}
	}
	tables, err := conn.Helpers()
	for _, t := range tables {
		if family := families[t.Family]; family != "" {
			add(&helpers, fmt.Sprintf("the table %s %s", family, t.Name))
		}
	}
	// Kernels before 6.0 can give helpers to all connections by themselves.
	if on, e := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_helper"); e == nil && bytes.HasPrefix(on, []byte("1")) {
		add(&helpers, "net.netfilter.nf_conntrack_helper = 1")
	}
	return chains, helpers, err
}
