package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// formerNetwork is a network of an earlier configuration, as far as it takes to remove it from the kernel.
type formerNetwork struct {
	Name      string       `json:"name"`
	Interface string       `json:"interface"`
	Address   netip.Prefix `json:"address"`
	Address6  netip.Prefix `json:"address6,omitzero"`
	WAN       string       `json:"wan"`
}

func formerFile(stateDir string) string { return filepath.Join(stateDir, "networks") }

// remember notes which networks may be in the kernel, before they are, so that one that is no longer in the
// configuration when the daemon starts is removed.
func remember(stateDir string, networks []*config.Config) error {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("making state_dir: %w", err)
	}
	var all []formerNetwork
	for _, n := range networks {
		all = append(all, formerNetwork{n.Name, n.LAN.Interface, n.LAN.Address, n.LAN.Address6, n.WAN.Interface})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("noting the networks: %w", err)
	}
	text = append(text, '\n')
	if noted, err := os.ReadFile(formerFile(stateDir)); err == nil && bytes.Equal(noted, text) {
		return nil // a full disk does not matter then
	}
	err = statefile.Replace(formerFile(stateDir), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("noting the networks: %w (is there room at state_dir?)", err)
	}
	return nil
}

// leaveFormer removes networks from the kernel that the configuration no longer has, or has elsewhere, and notes those
// that it has.
func (s *several) leaveFormer(cfg *config.Config) error {
	text, err := os.ReadFile(formerFile(cfg.StateDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the networks of before: %w", err)
	}
	var all []formerNetwork
	if err == nil {
		if err := json.Unmarshal(text, &all); err != nil {
			s.Log.Error("networks that are no longer in the configuration may be left in the kernel: their list is damaged",
				"file", formerFile(cfg.StateDir), "err", err)
		}
	}
	for _, f := range all {
		old := f.config(cfg)
		if slices.ContainsFunc(cfg.Networks, func(n *config.Config) bool { return n.Name == f.Name && !moved(n, old) }) {
			continue
		}
		if err := closeNetwork(old); err != nil && !errors.Is(err, ErrNotHere) {
			return fmt.Errorf("removing the former network %q: %w", f.Name, err)
		}
		s.Log.Info("removed a network that is no longer in the configuration; its interface stays closed", "network",
			f.Name, "lan", f.Interface)
	}
	return remember(cfg.StateDir, cfg.Networks)
}

// config is a configuration of the network as Detach needs it.
func (f formerNetwork) config(cfg *config.Config) *config.Config {
	old := *cfg.Networks[0]
	old.Name, old.LAN = f.Name, config.LAN{Interface: f.Interface, Address: f.Address, Address6: f.Address6}
	old.WAN.Interface = f.WAN
	old.StateDir = filepath.Join(cfg.StateDir, f.Name)
	old.Datapath.PinDir = filepath.Join(cfg.Datapath.PinDir, f.Name)
	old.FlowLog.Folder = filepath.Join(old.StateDir, "flows")
	return &old
}

// refuseSingle refuses to serve several networks while what a daemon with one network left is in the kernel, or the
// reverse: the same packets would be judged twice.
func refuseSingle(cfg *config.Config) error {
	left := filepath.Join(cfg.Datapath.PinDir, "link_lan_in")
	if _, err := os.Stat(left); err != nil {
		return nil
	}
	return fmt.Errorf("a gateway with one network, [lan], is in the kernel (%s): run gatewayd detach with its "+
		"configuration first", left)
}

// refuseSeveral is refuseSingle for a configuration with one network.
func refuseSeveral(cfg *config.Config) error {
	left := filepath.Join(cfg.Datapath.PinDir, "_shared")
	if _, err := os.Stat(left); err != nil || cfg.Name != "" {
		return nil
	}
	return fmt.Errorf("a gateway with several networks, [[network]], is in the kernel (%s): run gatewayd detach with its "+
		"configuration first", left)
}
