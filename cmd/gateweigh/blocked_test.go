package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// door is an nftables portal whose rules are for the interface IF and for packets WHICH. Clients that are not admitted
// are dropped there.
const door = `[dut.NAME]
start = '''
nft -f - <<END
table ip NAME {
  set admitted { type ipv4_addr; }
  chain forward { type filter hook forward priority 0; policy accept; iifname "IF" WHICH ip saddr != @admitted drop; }
}
END
'''
admit = '''awk '{print "add element ip NAME admitted { " $2 " }"}' | nft -f -'''
`

// revokes is the device's command that closes the door for clients again.
const revokes = `revoke = '''awk '{print "delete element ip NAME admitted { " $2 " }"}' | nft -f -'''
`

// doorOf returns a device's table in an experiment's file.
func doorOf(name, link, which, more string) string {
	return strings.NewReplacer("NAME", name, "IF", link, "WHICH", which).Replace(door + more)
}

const lan = "$GATEWEIGH_LAN_IF"

// keptOut runs devices for a few windows.
func keptOut(t *testing.T, settings string, tables ...string) (ended, result.Run) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "doors.toml", settings+strings.Join(tables, ""))
	e := finish(t, command(t, dir, "run", "doors.toml", "--out", "r"))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatalf("%v\n%s", err, e.stderr)
	}
	return e, run
}

const shortly = "clients = [4]\nblocks = 1\naa_blocks = 0\nwindows = 1\nwindow = \"300ms\"\nwarmup = \"100ms\"\nredo " +
	"= 0\noffered_mbps = [10]\n"

// TestGatewaysThatKeepNobodyOutFail: a device that forwards packets of clients which it has not admitted fails in every
// block. The test uses packets of the load's protocol: a rule for another protocol does not help.
func TestGatewaysThatKeepNobodyOutFail(t *testing.T) {
	for load, protocol := range map[string]string{"tcp": "TCP", "udp": "UDP"} {
		e, run := keptOut(t,
			"duts = [\"misspelt\", \"tcponly\", \"udponly\", \"some\", \"right\", \"keeps\", \"opened\", \"late\"]\n"+shortly+
				"[traffic]\nprotocol = \""+load+"\"\n",
			doorOf("misspelt", "lan0", "", revokes), doorOf("tcponly", lan, "meta l4proto tcp", revokes),
			doorOf("udponly", lan, "meta l4proto udp", revokes),
			// One client is let through by its hardware address.
			doorOf("some", lan, "ether saddr != 02:67:77:61:00:04 ether saddr != 02:67:77:62:00:04", revokes),
			doorOf("right", lan, "", revokes),
			doorOf("keeps", lan, "", "revoke = \"true\"\n"),
			doorOf("opened", "lan0", "", "open = true\n"),
			// Its router holds back what it has admitted: it arrives when the clients have left, and none of it is a knock.
			strings.Replace(doorOf("late", lan, "", revokes), "\nEND\n",
				"\nEND\ntc qdisc replace dev $GATEWEIGH_WAN_IF root tbf rate 4mbit burst 8k limit 8mb\n", 1))
		text := map[string]string{}
		for _, b := range run.Blocks {
			text[b.DUT] = b.Error
		}
		for _, name := range []string{
			"misspelt", map[string]string{"tcp": "udponly", "udp": "tcponly"}[load], "some", "keeps"} {
			when := map[bool]string{true: "after leaving", false: "before admission"}[name == "keeps"]
			for _, want := range []string{
				"client 4 (192.168.137.", "reached " + protocol + " 192.168.89.1:", when, "interface", "open = true"} {
				if !strings.Contains(text[name], want) {
					t.Errorf("%s, %s: the error lacks %q: %q", name, load, want, text[name])
				}
			}
		}
		for _, name := range []string{load + "only", "right", "opened", "late"} {
			if text[name] != "" {
				t.Errorf("%s, %s: %s", name, load, text[name])
			}
		}
		of := map[string]int{}
		for _, tr := range run.Trials {
			of[tr.Cell.Text(result.DUT)]++
		}
		if of["misspelt"]+of["some"] > 0 || of["right"] != 1 || of["opened"] != 1 || of["keeps"] != 1 {
			t.Errorf("%s: trials by device: %v", load, of)
		}
		if e.code != exitFailed || !strings.Contains(e.stderr, "misspelt, block 1 failed: client 1") {
			t.Errorf("%s: exit code %d\n%s", load, e.code, e.stderr)
		}
	}
}
