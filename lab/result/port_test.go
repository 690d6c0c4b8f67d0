package result

import "testing"

// TestPort: String describes a network interface and its settings in a line for reports.
func TestPort(t *testing.T) {
	for want, p := range map[string]Port{
		"enp2s0 igb 6.1, channels 4 combined 1 other, rings 256 rx 512 tx, threaded NAPI on, " +
			"interrupts enp2s0-TxRx-0 on CPU 2, RPS 00000003 0, TSO+GRO on": {
			Interface: "enp2s0", Driver: "igb", DriverVersion: "6.1", Channels: &Channels{Combined: 4, Other: 1},
			Rings: &Rings{Rx: 256, Tx: 512}, Threaded: "1", RPS: []string{"00000003", "0"}, XPS: []string{"0,0"},
			Offloads:   []string{"rx-gro", "rx-vlan-filter", "tx-tcp-segmentation"},
			Interrupts: []Interrupt{{Number: 9, Name: "enp2s0-TxRx-0", CPUs: "0-3", Handled: "2"}}},
		"r0 veth, threaded NAPI off": {Interface: "r0", Driver: "veth", Threaded: "0"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}
