// Tests of devices that let clients through before their login or after their logout, and of devices that let nobody
// through.

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// portalTable defines a device: an nftables portal that drops what clients send before they are admitted. NAME stands
// for the device, IF for the interface of its rule, and WHICH for the packets that the rule matches.
const portalTable = `[dut.NAME]
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

// revokeLine is the device's command that shuts clients out again.
const revokeLine = `revoke = '''awk '{print "delete element ip NAME admitted { " $2 " }"}' | nft -f -'''
`

// portal returns the table of a portal for an experiment's file: portalTable with its placeholders replaced, and the
// lines in more.
func portal(name, link, which, more string) string {
	return strings.NewReplacer("NAME", name, "IF", link, "WHICH", which).Replace(portalTable + more)
}

// lan is the variable that holds the name of the router's interface to the clients.
const lan = "$GATEWEIGH_LAN_IF"

// runDevices measures the devices of tables with the keys in settings, and reads the run.
func runDevices(t *testing.T, settings string, tables ...string) (ended, result.Run) {
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

// shortly are the keys of an experiment with one window for each device.
const shortly = "clients = [4]\nblocks = 1\naa_blocks = 0\nwindows = 1\nwindow = \"300ms\"\nwarmup = \"100ms\"\nredo " +
	"= 0\noffered_mbps = [10]\n"

// TestGatewaysThatKeepNobodyOutFail: the lab sends packets for a client before it is admitted and after it has left. A
// device that forwards them fails in every block. The packets have the load's protocol, TCP or UDP: a device that
// blocks only the other protocol fails too.
func TestGatewaysThatKeepNobodyOutFail(t *testing.T) {
	for load, protocol := range map[string]string{"tcp": "TCP", "udp": "UDP"} {
		e, run := runDevices(t,
			"duts = [\"misspelt\", \"tcponly\", \"udponly\", \"some\", \"right\", \"keeps\", \"opened\", \"late\"]\n"+shortly+
				"[traffic]\nprotocol = \""+load+"\"\n",
			portal("misspelt", "lan0", "", revokeLine), portal("tcponly", lan, "meta l4proto tcp", revokeLine),
			portal("udponly", lan, "meta l4proto udp", revokeLine),
			// It lets client 4 through, by the client's hardware address.
			portal("some", lan, "ether saddr != 02:67:77:61:00:04 ether saddr != 02:67:77:62:00:04", revokeLine),
			portal("right", lan, "", revokeLine),
			portal("keeps", lan, "", "revoke = \"true\"\n"),
			portal("opened", "lan0", "", "open = true\n"),
			// Its router queues packets of admitted clients for long. Some arrive after the clients have left; the lab does not
			// count them, because they were sent before.
			strings.Replace(portal("late", lan, "", revokeLine), "\nEND\n",
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
