package gateway

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// bridgeCalls is the setting by which netfilter sees a bridge's frames before they come to the bridge's interface. The
// kernel then tracks and translates connections before the gateway's programs and rules see them, and a second time
// where the gateway changes a packet.
const bridgeCalls = "net.bridge.bridge-nf-call-iptables"

// bridgeLook is the time between two looks at the settings of bridges, because the kernel sends no messages about them.
const bridgeLook = 2 * time.Second

// bridge is an interface of the gateway that is a bridge. source is the line of the configuration that names it.
type bridge struct{ source, name string }

// bridges are those of the gateway's interfaces that are bridges.
func bridges(cfg *config.Config) (all []bridge) {
	for _, i := range [][2]string{{"lan.interface", cfg.LAN.Interface}, {"wan.interface", cfg.WAN.Interface}} {
		if link, err := netlink.LinkByName(i[1]); err == nil && link.Type() == "bridge" {
			all = append(all, bridge{cfg.LineOf(i[0]), i[1]})
		}
	}
	return all
}

// netfilterMessages returns warnings, with remedies, if netfilter sees the frames of a bridge.
func (b bridge) netfilterMessages() (messages []string) {
	for _, by := range [][2]string{
		{"/proc/sys/net/bridge/bridge-nf-call-iptables", fmt.Sprintf(
			"%s = 1 (Docker, libvirt and Kubernetes set it): sysctl -w %[1]s=0, and for the next boot in a file of /etc/sysctl.d",
			bridgeCalls)},
		{"/sys/class/net/" + b.name + "/bridge/nf_call_iptables",
			fmt.Sprintf("its own setting: ip link set %s type bridge nf_call_iptables 0", b.name)},
	} {
		if on, err := os.ReadFile(by[0]); err == nil && bytes.HasPrefix(on, []byte("1")) {
			messages = append(messages, fmt.Sprintf(
				"%s: %s is a bridge, whose frames netfilter sees before gatewayd does: clients do not reach forwarded ports by "+
					"the outside address, rules meet frames between clients, nfqueue judges and counts these, and connections may "+
					"hang beside programs that listen to the bridge's packets. The reason is %s", b.source, b.name, by[1]))
		}
	}
	return messages
}

// bridged warns of such bridges.
func (s *survey) bridged() {
	for _, b := range bridges(s.Config) {
		for _, text := range b.netfilterMessages() {
			s.addFinding(Warning, "%s", text)
		}
	}
}

// watchBridges warns when another program makes netfilter see bridges' frames, until ctx ends. A setting that was so at
// the start was warned of then.
func (g *gateway) watchBridges(ctx context.Context) error {
	all := bridges(g.cfg)
	if len(all) == 0 {
		<-ctx.Done()
		return nil
	}
	tick := ticker.Every(bridgeLook)
	defer tick.Stop()
	for before, begun := map[string]bool{}, false; ; begun = true {
		present := map[string]bool{}
		for _, b := range all {
			for _, text := range b.netfilterMessages() {
				if present[text] = true; begun && !before[text] {
					g.log.Warn(text)
				}
			}
		}
		if len(present) < len(before) {
			g.log.Info("netfilter sees a bridge's frames no longer")
		}
		before = present
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
