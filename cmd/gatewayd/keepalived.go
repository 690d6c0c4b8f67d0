package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/config"
)

func clusterKeepalivedCommand() *cobra.Command {
	var file string
	var id uint8
	cmd := &cobra.Command{
		Use:   "keepalived",
		Short: "Print a keepalived.conf by which this gateway and another one share their addresses",
		Long: "Prints a configuration of keepalived for this gateway of a pair (pair.site): it moves lan.address,\n" +
			"lan.address6 and pair.wan_address to the gateway that serves, and tells gatewayd. Run it on both gateways:\n" +
			"each has a configuration of its own. docs/two-gateways.md says the rest.",
		Args: usage(cobra.NoArgs),
		RunE: func(_ *cobra.Command, _ []string) error {
			cfg, err := config.Load(file)
			switch {
			case err != nil:
				return &exitError{exitUsage, err}
			case cfg.Pair.Site == "":
				return &exitError{exitUsage, fmt.Errorf("%s: pair.site is not set: this gateway is alone", file)}
			case cfg.Pair.By != config.ByKeepalived:
				return &exitError{exitUsage, errors.New(`pair.by is "store": gatewayd moves the addresses itself`)}
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			return keepalivedConf.Execute(stdout, keepalivedPair{cfg, program, cmp.Or(id, 1)})
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "configuration")
	cmd.Flags().Uint8Var(&id, "id", 51, "virtual_router_id, which nobody else at the WAN has")
	return cmd
}

// keepalivedPair is what a configuration of keepalived is made of.
type keepalivedPair struct {
	*config.Config
	Program string
	ID      uint8
}

// Command is the beginning of the commands that keepalived runs.
func (k keepalivedPair) Command() string { return k.Program + " --socket " + k.ControlSocket() }

// Addresses are those that move, each with its interface; those of IPv4 first.
func (k keepalivedPair) Addresses(six bool) (all []string) {
	for _, a := range []struct {
		dev    string
		prefix netip.Prefix
	}{{k.LAN.Interface, k.LAN.Address}, {k.LAN.Interface, k.LAN.Address6}, {k.WAN.Interface, k.Pair.WANAddress}} {
		if a.prefix.IsValid() && a.prefix.Addr().Is6() == six {
			all = append(all, a.prefix.String()+" dev "+a.dev)
		}
	}
	return all
}

// keepalivedConf has one instance, so that all addresses move together. It speaks at the WAN, where no client can forge
// what it says. Neither gateway takes the addresses back from the other one.
var keepalivedConf = template.Must(template.New("").Parse(
	`! Made by "gatewayd cluster keepalived" for {{.Store.Name}} of {{.Pair.Site}}.
global_defs {
	router_id {{.Store.Name}}
	script_user root
	enable_script_security
	vrrp_garp_master_delay 1
	vrrp_garp_master_repeat 3
	vrrp_garp_master_refresh 60
}

vrrp_script gatewayd {
	script "{{.Command}} status --ready"
	interval 1
	timeout 2
	rise 1
	fall 2
}

vrrp_instance {{.Pair.Site}} {
	state BACKUP
	nopreempt
	interface {{.WAN.Interface}}
	virtual_router_id {{.ID}}
	priority 100
	version 3
	advert_int 0.2
	virtual_ipaddress {
{{- range .Addresses false}}
		{{.}}
{{- end}}
	}
{{- with .Addresses true}}
	virtual_ipaddress_excluded {
{{- range .}}
		{{.}}
{{- end}}
	}
{{- end}}
	track_interface {
		{{.LAN.Interface}}
	}
	track_script {
		gatewayd
	}
	notify_master "{{.Command}} cluster become active"
	notify_backup "{{.Command}} cluster become standby"
	notify_fault "{{.Command}} cluster become standby"
	notify_stop "{{.Command}} cluster become standby"
}
`))
